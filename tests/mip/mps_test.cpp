// SPDX-License-Identifier: BSL-1.0
#include "remat/mip/mps.hpp"

#include <doctest/doctest.h>

#include <sstream>
#include <string>

namespace {

using remat::mip_model;
constexpr double infinite = mip_model::infinite;

std::string text_of(const mip_model& m, std::string_view name = "remat") {
  std::ostringstream out;
  remat::write_mps(out, m, name);
  return out.str();
}

}  // namespace

TEST_CASE("a model with every kind of row, column and bound, to the letter") {
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

TEST_CASE("a model without rows, and one without columns") {
  mip_model m;
  CHECK(text_of(m) == "* minimise cost + 0\nNAME remat FREE\nROWS\n N cost\nCOLUMNS\nRHS\nRANGES\nBOUNDS\nENDATA\n");
  m.add_column(1, 0, 1);
  CHECK(text_of(m, "") ==
        "* minimise cost + 0\nNAME remat FREE\nROWS\n N cost\nCOLUMNS\n c0 cost 1\nRHS\nRANGES\nBOUNDS\n"
        " LO bound c0 0\n UP bound c0 1\nENDATA\n");
}
