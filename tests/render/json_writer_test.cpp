// SPDX-License-Identifier: BSL-1.0
#include "remat/render/detail/json_writer.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

using namespace remat::detail;
using nlohmann::json;

TEST_CASE("commas, lines and brackets are set as they belong") {
  std::ostringstream out;
  json_writer to(out);
  to.open('{').member("a", 1).key("b").open('[').close(']').line().key("c").open('[');
  to.line().value("x").line().open('{').member("d", 2.5).close('}').value(-3).line().close(']').close('}').line().end();
  CHECK(out.str() == "{\"a\": 1, \"b\": [],\n\"c\": [\n\"x\",\n{\"d\": 2.5}, -3\n]}\n");
}

TEST_CASE("numbers are read back as they were; what is not finite is null") {
  const auto text = [](auto number) {
    std::ostringstream out;
    json_writer(out).value(number).end();
    return out.str();
  };
  CHECK(text(0.1) == "0.1");
  CHECK(text(0.1F) == "0.1");
  CHECK(text(std::numeric_limits<std::int64_t>::min()) == "-9223372036854775808");
  CHECK(text(std::numeric_limits<std::uint64_t>::max()) == "18446744073709551615");
  for (const double x : {1.0 / 3, 1e300, 5e-324, -2.0}) CHECK(json::parse(text(x)).get<double>() == x);
  CHECK(text(std::numeric_limits<double>::infinity()) == "null");
  CHECK(text(std::numeric_limits<float>::quiet_NaN()) == "null");
}

TEST_CASE("strings are escaped; what is not UTF-8 is replaced") {
  const auto quoted = [](const std::string& text) {
    std::ostringstream out;
    json_writer(out).value(text).end();
    return out.str();
  };
  CHECK(quoted("a\"b\\c\n\t\x01\x7F/") == R"("a\"b\\c\u000a\u0009\u0001\u007f/")");
  CHECK(quoted(std::string("\0", 1)) == R"("\u0000")");
  CHECK(quoted("</script>") == R"("\u003c/script>")");
  CHECK(quoted("µ€😀") == "\"µ€😀\"");
  CHECK(quoted("\xc2\x9b\xe2\x80\xae\xf3\xa0\x80\x81") == R"("\u009b\u202e\udb40\udc01")");  // terminals obey them
  std::uint64_t state = 1;
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (int i = 0; i < 6; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const auto byte = static_cast<unsigned char>(state >> 56U);
      // Mostly from the bytes at the bounds of UTF-8.
      const unsigned char near[] = {0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xE0,
                                    0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF, 'a',  '"',  '\\', 0};
      text += static_cast<char>(byte < 200 ? near[byte % sizeof near] : byte);
    }
    bool valid = true;
    try {
      (void)json(text).dump();
    } catch (const json::exception&) {
      valid = false;
    }
    const std::string out = quoted(text);
    const auto read = json::parse(out).get<std::string>();  // is UTF-8, else this throws
    CHECK((read == text) == valid);
  }
}
