// SPDX-License-Identifier: BSL-1.0
#include "remat/render/table.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>

using namespace remat;

TEST_CASE("columns are aligned by code points, and no line ends in a space") {
  text_table table({{"solver"}, {"peak", text_table::align::right}, {"message"}});
  table.row({"évict", "1.50 GiB", ""});
  table.row({"no_remat", "–"});
  CHECK(table.rows() == 2);
  std::ostringstream out;
  table.write(out);
  CHECK(out.str() ==
        "solver        peak  message\n"
        "────────  ────────  ───────\n"
        "évict     1.50 GiB\n"
        "no_remat         –\n");
}

TEST_CASE("cells beyond the columns are dropped, a table may have no rows") {
  text_table table({{"a"}});
  std::ostringstream empty;
  table.write(empty);
  CHECK(empty.str() == "a\n─\n");
  table.row({"1", "2"});
  std::ostringstream out;
  table.write(out);
  CHECK(out.str() == "a\n─\n1\n");
}

TEST_CASE("bytes have a binary unit and at most four digits before it") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1024) == "1.00 KiB");
  CHECK(format_bytes(1536) == "1.50 KiB");
  CHECK(format_bytes(10 * 1024) == "10.0 KiB");
  CHECK(format_bytes(100 * 1024) == "100 KiB");
  CHECK(format_bytes((1 << 20) - 1) == "1.00 MiB");
  CHECK(format_bytes(-2048) == "-2.00 KiB");
  CHECK(format_bytes(std::numeric_limits<std::int64_t>::max()) == "8.00 EiB");
  // Whatever the size: it never shows 1024 of a unit that has a larger one above it.
  for (std::int64_t b = 1; b < std::numeric_limits<std::int64_t>::max() / 3; b = b * 2 + b / 3 + 1)
    for (const std::int64_t d : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}})
      CHECK(format_bytes(b + d).substr(0, 4) != "1024");
}

TEST_CASE("seconds have a unit") {
  CHECK(format_seconds(0) == "0 s");
  CHECK(format_seconds(1.5) == "1.50 s");
  CHECK(format_seconds(0.0123) == "12.3 ms");
  CHECK(format_seconds(4e-6) == "4.00 µs");
  CHECK(format_seconds(4e-9) == "4.00 ns");
  CHECK(format_seconds(0.99999) == "1.00 s");
  CHECK(format_seconds(std::numeric_limits<double>::infinity()) == "–");
  CHECK(format_time(0.0123, "s") == "12.3 ms");
  CHECK(format_time(1234567, "") == "1.235e+06");
  CHECK(format_time(12, "moves") == "12 moves");
  CHECK(format_seconds(999'999) == "999999 s");
  CHECK(format_seconds(1e302) == "1e+302 s");
}

TEST_CASE("percentages, and no negative zero") {
  CHECK(format_percent(0.12345) == "12.3 %");
  CHECK(format_percent(0.12345, 2) == "12.35 %");
  CHECK(format_percent(-1e-9) == "0.0 %");
  CHECK(format_percent(-0.001) == "-0.1 %");
  CHECK(format_percent(std::nan("")) == "–");
  CHECK(format_percent(1e6) == "100000000.0 %");
  CHECK(format_percent(1.5e300, 2) == "1.5e+302 %");
  CHECK(format_percent(1e307) == "–");
  CHECK(format_fixed(std::numeric_limits<double>::max(), 0).size() == 309);
}

TEST_CASE("sizes in messages get units") {
  CHECK(with_byte_units("operation 5 (x) needs 3221225472 bytes for its inputs") ==
        "operation 5 (x) needs 3.00 GiB for its inputs");
  CHECK(with_byte_units("needs 4096 bytes; at most 2048 bytes.") == "needs 4.00 KiB; at most 2.00 KiB.");
  CHECK(with_byte_units("needs 4096 bytes: 512 bytes for it, 3584 bytes for others") ==
        "needs 4.00 KiB: 512 B for it, 3.50 KiB for others");
  for (const char* same : {"", "needs 1023 bytes", "needs 1023 bytes: 512 bytes for it", "x4096 bytes", "1.2048 bytes",
                           "4096 bytes_accessed", "4096 byteses", "4096 operations", "99999999999999999999 bytes"})
    CHECK(with_byte_units(same) == same);
}

TEST_CASE("cells are escaped, whatever names they hold") {
  text_table table({{"graph"}});
  table.row({"a\x1b[31m\nb\xc2\x9b\xe2\x80\xae"});
  std::ostringstream out;
  table.write(out);
  CHECK(out.str() == "graph\n──────────────────────────\na\\x1b[31m\\x0ab\\u009b\\u202e\n");
}

TEST_CASE("text is wrapped at spaces, and by code points") {
  using lines = std::vector<std::string>;
  CHECK(remat::wrap_text("", 5) == lines{""});
  CHECK(remat::wrap_text("ab cd ef", 5) == lines{"ab cd", "ef"});
  CHECK(remat::wrap_text("ab cd ef", 8) == lines{"ab cd ef"});
  CHECK(remat::wrap_text("µµ µµ µµ", 5) == lines{"µµ µµ", "µµ"});
  CHECK(remat::wrap_text("a longword b", 4) == lines{"a", "longword", "b"});
  CHECK(remat::wrap_text("a\n  b c\n", 4) == lines{"a", "  b", "c", ""});
}

TEST_CASE("a table fits a width: further columns follow below, with the keys again, and the last column is wrapped") {
  using remat::text_table;
  text_table table({{"solver"}, {"budget", text_table::align::right}, {"peak", text_table::align::right}, {"message"}});
  table.row({"auto", "1 B", "2 B", "a message of some words that does not fit"});
  table.row({"rotor", "10 B", "", ""});
  const auto written = [&](std::size_t width, std::size_t keys) {
    std::ostringstream out;
    table.write(out, width, keys);
    return out.str();
  };
  std::ostringstream plain;
  table.write(plain);
  CHECK(written(text_table::unlimited, 1) == plain.str());
  CHECK(written(200, 1) == plain.str());
  CHECK(written(46, 1) ==
        "solver  budget  peak  message\n"
        "──────  ──────  ────  ────────────────────────\n"
        "auto       1 B   2 B  a message of some words\n"
        "                      that does not fit\n"
        "rotor     10 B\n");
  CHECK(written(32, 1) ==
        "solver  budget  peak\n"
        "──────  ──────  ────\n"
        "auto       1 B   2 B\n"
        "rotor     10 B\n"
        "\n"
        "solver  message\n"
        "──────  ────────────────────────\n"
        "auto    a message of some words\n"
        "        that does not fit\n"
        "rotor\n");
  for (std::size_t width = 20; width < 90; ++width) {
    std::istringstream lines(written(width, 1));
    for (std::string line; std::getline(lines, line);)
      CHECK(text_table::width(line) <= std::max<std::size_t>(width, 32));
  }
}
