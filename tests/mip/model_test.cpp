// SPDX-License-Identifier: BSL-1.0
#include "remat/mip/model.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <vector>

#include "remat/core/error.hpp"

namespace {

using namespace remat;  // NOLINT: a test
constexpr double infinite = mip_model::infinite;

}  // namespace

TEST_CASE("columns and rows are as they were given; equal columns of a row are added up") {
  mip_model m;
  const auto x = m.add_integer(-1, 0, 3);
  const auto y = m.add_column(2, -infinite, infinite);
  const auto z = m.add_column(0, 1, 1);
  CHECK(m.add_row(-infinite, {{z, 2}, {x, 1}, {z, 3}, {y, 4}, {y, -4}}, 5) == 0);
  CHECK(m.add_row(0, {}, 0) == 1);
  CHECK(m.num_columns() == 3);
  CHECK(m.num_rows() == 2);
  CHECK(m.num_terms() == 2);
  CHECK(m.row(1).empty());
  REQUIRE(m.row(0).size() == 2);
  CHECK(m.row(0)[0].column == x);
  CHECK(m.row(0)[0].value == 1);
  CHECK(m.row(0)[1].column == z);
  CHECK(m.row(0)[1].value == 5);
  CHECK(m.row_lower(0) == -infinite);
  CHECK(m.row_upper(0) == 5);
  CHECK(m.is_integer(x));
  CHECK_FALSE(m.is_integer(y));
  m.set_bounds(x, 1, 2);
  CHECK(m.lower(x) == 1);
  CHECK(m.upper(x) == 2);
}

TEST_CASE("objective and violation") {
  mip_model m;
  m.offset = 10;
  const auto x = m.add_integer(-1, 0, 3);
  const auto y = m.add_column(2, 0, 4);
  m.add_row(1, {{x, 1}, {y, 8}}, 9);
  CHECK(m.objective(std::vector<double>{2, 0.5}) == 9);
  CHECK(m.violation(std::vector<double>{2, 0.5}) == 0);
  CHECK(m.violation(std::vector<double>{0.25, 0.5}) == 0.25);             // not whole
  CHECK(m.violation(std::vector<double>{-2, 1}) == 2);                    // below its bound
  CHECK(m.violation(std::vector<double>{0, 4.5}) == 36.0 / 8 - 9.0 / 8);  // the row, in its largest coefficient
  CHECK(m.violation(std::vector<double>{0, 0}) == 1.0 / 8);
  CHECK(m.violation(std::vector<double>{0}) == infinite);
  CHECK(m.violation(std::vector<double>{0, std::numeric_limits<double>::quiet_NaN()}) == infinite);
}

TEST_CASE("what no model has is refused, and leaves the model as it was") {
  mip_model m;
  const auto x = m.add_column(1, 0, 1);
  CHECK_THROWS_AS(m.add_column(infinite, 0, 1), bad_argument);
  CHECK_THROWS_AS(m.add_column(0, 2, 1), bad_argument);
  CHECK_THROWS_AS(m.add_column(0, std::numeric_limits<double>::quiet_NaN(), 1), bad_argument);
  CHECK_THROWS_AS(m.add_column(0, infinite, infinite), bad_argument);
  CHECK_THROWS_AS(m.add_row(0, {{x, 1}, {7, 1}}, 1), bad_argument);
  CHECK_THROWS_AS(m.add_row(0, {{x, infinite}}, 1), bad_argument);
  CHECK_THROWS_AS(m.add_row(1, {{x, 1}}, 0), bad_argument);
  CHECK_THROWS_AS(m.set_bounds(1, 0, 0), bad_argument);
  CHECK_THROWS_WITH(m.add_row(0, {{7, 1}}, 1), "row 0: column 7 does not exist; there are 1");
  CHECK(m.num_columns() == 1);
  CHECK(m.num_rows() == 0);
  CHECK(m.num_terms() == 0);
  m.add_row(0, {{x, 1}}, 1);
  CHECK(m.row(0).size() == 1);
}
