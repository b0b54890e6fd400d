// SPDX-License-Identifier: BSL-1.0
#include "remat/mip/model.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/error.hpp"

namespace {

using namespace remat;  // NOLINT: a test
constexpr double infinite = mip_model::infinite;

/// The model in free MPS.
std::string text_of(const mip_model& m, std::string_view name = "remat") {
  std::ostringstream out;
  write_mps(out, m, name);
  return out.str();
}

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

TEST_CASE("free MPS: every kind of row, column and bound, to the letter") {
  mip_model m;
  m.offset = -2.5;
  const auto x = m.add_integer(-1, 0, 1);
  const auto y = m.add_column(-2, -infinite, 4);
  const auto z = m.add_integer(0, -3, infinite);
  const auto u = m.add_integer(1.0 / 3, 7, 7);
  const auto v = m.add_column(1e-9, -infinite, infinite);
  m.add_row(-infinite, {{x, 3}, {y, 1}}, 5);
  m.add_row(2, {{y, 1}, {z, -1}}, infinite);
  m.add_row(-4, {{z, 1}, {u, 1}}, -4);
  m.add_row(1, {{x, 1}, {v, 0.1}}, 2.5);
  m.add_row(-infinite, {{x, 9}}, infinite);
  m.add_row(-infinite, {}, 1);
  CHECK(text_of(m, "two words") == R"(* minimise cost + -2.5
NAME two_words FREE
ROWS
 N cost
 L r0
 G r1
 E r2
 L r3
 L r5
COLUMNS
 marker0 'MARKER' 'INTORG'
 c0 cost -1
 c0 r0 3
 c0 r3 1
 marker1 'MARKER' 'INTEND'
 c1 cost -2
 c1 r0 1
 c1 r1 1
 marker2 'MARKER' 'INTORG'
 c2 cost 0
 c2 r1 -1
 c2 r2 1
 c3 cost 0.3333333333333333
 c3 r2 1
 marker3 'MARKER' 'INTEND'
 c4 cost 1e-09
 c4 r3 0.1
RHS
 rhs r0 5
 rhs r1 2
 rhs r2 -4
 rhs r3 2.5
 rhs r5 1
RANGES
 range r3 1.5
BOUNDS
 LO bound c0 0
 UP bound c0 1
 MI bound c1
 UP bound c1 4
 LO bound c2 -3
 PL bound c2
 FX bound c3 7
 MI bound c4
 PL bound c4
ENDATA
)");
}

TEST_CASE("free MPS: a model without rows, and one without columns") {
  mip_model m;
  CHECK(text_of(m) == "* minimise cost + 0\nNAME remat FREE\nROWS\n N cost\nCOLUMNS\nRHS\nRANGES\nBOUNDS\nENDATA\n");
  m.add_column(1, 0, 1);
  CHECK(text_of(m, "") ==
        "* minimise cost + 0\nNAME remat FREE\nROWS\n N cost\nCOLUMNS\n c0 cost 1\nRHS\nRANGES\nBOUNDS\n"
        " LO bound c0 0\n UP bound c0 1\nENDATA\n");
}
