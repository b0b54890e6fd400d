// SPDX-License-Identifier: BSL-1.0
#include "remat/mip/detail/row_writer.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "remat/mip/branch_and_bound.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

}  // namespace

TEST_CASE("constants go to the other side, single columns become bounds") {
  row_writer p;
  const auto x = p.new_column(), y = p.new_column(true);
  p.add_row(1, {{x, 2}, {y, 1}, {mip_value::one(), 3}}, 5);
  REQUIRE(p.model().num_rows() == 1);
  p.add_row(-1, {{x, -2}, {mip_value::one(), 0.5}}, 0);  // 0.25 ≤ x ≤ 0.75
  CHECK(p.model().num_rows() == 1);
  CHECK(p.model().lower(x.column) == doctest::Approx(0.25));
  CHECK(p.model().upper(x.column) == doctest::Approx(0.75));
  p.add_row(0, {{mip_value::one(), 1}}, 1);  // true
  p.finish();
  CHECK(p.model().num_rows() == 1);
  CHECK(mip_value::one().is_constant(1));
  CHECK_FALSE(x.is_constant(0));
}

TEST_CASE("what cannot hold makes the program infeasible") {
  for (int kind = 0; kind < 2; ++kind) {
    row_writer p;
    const auto x = p.new_column();
    if (kind == 0)
      p.add_row(2, {{mip_value::one(), 1}}, row_writer::infinite);
    else
      p.add_row(3, {{x, 2}}, row_writer::infinite);
    p.finish();
    CHECK(branch_and_bound.solve(p.model(), {}).status == mip_status::infeasible);
  }
}

TEST_CASE("random rows: columns that are constants in one program and fixed in another give the same optimum") {
  int feasible = 0, infeasible = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 engine(seed);
    const auto below = [&](std::uint64_t n) { return static_cast<int>(engine() % n); };
    constexpr std::size_t columns = 5;
    std::vector<int> fixed(columns, -1);  // or 0, 1
    for (int& f : fixed)
      if (below(2) == 0) f = below(2);
    row_writer folded;
    mip_model plain;
    std::vector<mip_value> v(columns);
    for (std::size_t j = 0; j < columns; ++j) {
      const double fix = fixed[j];
      plain.add_integer(0, fixed[j] < 0 ? 0 : fix, fixed[j] < 0 ? 1 : fix);
      v[j] = fixed[j] < 0 ? folded.new_column(true) : mip_value{mip_model::none, fix};
    }
    const int rows = 1 + below(4);
    for (int i = 0; i < rows; ++i) {
      std::vector<mip_term> terms;
      double c[columns];
      for (std::size_t j = 0; j < columns; ++j) {
        c[j] = below(3) == 0 ? below(7) - 3 : 0;
        if (c[j] != 0) terms.push_back({static_cast<std::uint32_t>(j), c[j]});
      }
      if (terms.empty()) continue;
      const double lower = below(5) - 3, upper = lower + below(3);
      plain.add_row(lower, terms, upper);
      // Terms with the coefficient 0 are none.
      std::initializer_list<std::pair<mip_value, double>> all = {
          {v[0], c[0]}, {v[1], c[1]}, {v[2], c[2]}, {v[3], c[3]}, {v[4], c[4]}};
      folded.add_row(lower, all, upper);
    }
    folded.finish();
    const mip_status a = branch_and_bound.solve(plain, {}).status,
                     b = branch_and_bound.solve(folded.model(), {}).status;
    INFO("seed ", seed);
    REQUIRE(a == b);
    (a == mip_status::infeasible ? infeasible : feasible) += 1;
  }
  CHECK(feasible > 50);
  CHECK(infeasible > 50);
}
