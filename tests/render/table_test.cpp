// SPDX-License-Identifier: BSL-1.0
#include "remat/render/table.hpp"

#include <doctest/doctest.h>

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
