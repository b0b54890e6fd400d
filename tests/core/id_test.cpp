// SPDX-License-Identifier: BSL-1.0
#include "remat/core/id.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using namespace remat;

TEST_CASE("the transpose holds the rows of each column, ascending") {
  index_rows rows;
  for (const std::vector<std::uint32_t>& row : {std::vector<std::uint32_t>{2, 0}, {}, {2}}) {
    rows.values.insert(rows.values.end(), row.begin(), row.end());
    rows.end_row();
  }
  const index_rows columns = rows.transposed(4);
  CHECK(columns.begin == std::vector<std::uint32_t>{0, 1, 1, 3, 3});
  CHECK(columns.values == std::vector<std::uint32_t>{0, 0, 2});
  CHECK(columns.transposed(3).values == std::vector<std::uint32_t>{0, 2, 2});
  CHECK(index_rows{}.transposed(0).size() == 0);
}
