// SPDX-License-Identifier: BSL-1.0
#include "remat/mip/row_writer.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "remat/mip/branch_and_bound.hpp"

namespace {

using namespace remat;  // NOLINT: a test

struct program : row_writer {
  using row_writer::fresh;
  using row_writer::infinite;
  using row_writer::one;
  using row_writer::row;
  using row_writer::say_if_impossible;
  using row_writer::value;
  [[nodiscard]] const mip_model& model() const { return model_; }
};

}  // namespace

TEST_CASE("constants go to the other side, single columns become bounds") {
  program p;
  const auto x = p.fresh(), y = p.fresh(true);
  p.row(1, {{x, 2}, {y, 1}, {program::one(), 3}}, 5);
  REQUIRE(p.model().num_rows() == 1);
  p.row(-1, {{x, -2}, {program::one(), 0.5}}, 0);  // 0.25 ≤ x ≤ 0.75
  CHECK(p.model().num_rows() == 1);
  CHECK(p.model().lower(x.column) == doctest::Approx(0.25));
  CHECK(p.model().upper(x.column) == doctest::Approx(0.75));
  p.row(0, {{program::one(), 1}}, 1);  // true
  p.say_if_impossible();
  CHECK(p.model().num_rows() == 1);
  CHECK(program::one().is(1));
  CHECK_FALSE(x.is(0));
}

TEST_CASE("what cannot hold makes the program infeasible") {
  for (int kind = 0; kind < 2; ++kind) {
    program p;
    const auto x = p.fresh();
    if (kind == 0)
      p.row(2, {{program::one(), 1}}, program::infinite);
    else
      p.row(3, {{x, 2}}, program::infinite);
    p.say_if_impossible();
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
    program folded;
    mip_model plain;
    std::vector<program::value> v(columns);
    for (std::size_t j = 0; j < columns; ++j) {
      const double fix = fixed[j];
      plain.add_integer(0, fixed[j] < 0 ? 0 : fix, fixed[j] < 0 ? 1 : fix);
      v[j] = fixed[j] < 0 ? folded.fresh(true) : program::value{mip_model::none, fix};
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
      std::initializer_list<std::pair<program::value, double>> all = {
          {v[0], c[0]}, {v[1], c[1]}, {v[2], c[2]}, {v[3], c[3]}, {v[4], c[4]}};
      folded.row(lower, all, upper);
    }
    folded.say_if_impossible();
    const mip_status a = branch_and_bound.solve(plain, {}).status,
                     b = branch_and_bound.solve(folded.model(), {}).status;
    INFO("seed ", seed);
    REQUIRE(a == b);
    (a == mip_status::infeasible ? infeasible : feasible) += 1;
  }
  CHECK(feasible > 50);
  CHECK(infeasible > 50);
}
