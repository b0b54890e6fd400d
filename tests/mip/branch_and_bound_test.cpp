// SPDX-License-Identifier: BSL-1.0
#include "remat/mip/branch_and_bound.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <stop_token>
#include <vector>

#include "remat/mip/model.hpp"
#include "support/long_run.hpp"
#include "support/random_mip.hpp"

namespace {

using namespace remat;  // NOLINT: a test
constexpr double infinite = mip_model::infinite;

static_assert(mip_backend<branch_and_bound_backend>);

/// A knapsack of n items that are nearly alike: a large tree.
mip_model knapsack(int n) {
  mip_model m;
  std::vector<mip_term> weights;
  double all = 0;
  for (int i = 0; i < n; ++i) {
    const double weight = 1000 + i * 37 % 101;
    weights.push_back({m.add_integer(-weight - i % 3, 0, 1), weight});
    all += weight;
  }
  m.add_row(-infinite, weights, std::floor(all / 2));
  return m;
}

}  // namespace

TEST_CASE("integers only: the same least objective as trying all values") {
  std::size_t solved = 0, without = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const mip_model m = test::random_mip(seed, 2 + static_cast<std::uint32_t>(seed % 9), 0);
    const double least = test::least_objective(m);
    double last_objective = infinite, last_bound = -infinite;
    mip_options options;
    options.on_incumbent = [&](std::span<const double> values, double objective) {
      CHECK(objective < last_objective);
      CHECK(m.violation(values) <= 1e-9);
      last_objective = objective;
    };
    options.on_bound = [&](double bound) {
      CHECK(bound > last_bound);
      CHECK((bound <= least + 1e-7 || least == infinite));
      last_bound = bound;
    };
    const mip_result r = branch_and_bound.solve(m, options);
    INFO("seed ", seed);
    if (least == infinite) {
      REQUIRE(r.status == mip_status::infeasible);
      REQUIRE(r.bound == infinite);
      ++without;
      continue;
    }
    ++solved;
    REQUIRE(r.status == mip_status::optimal);
    REQUIRE(r.objective == doctest::Approx(least).epsilon(1e-9));
    REQUIRE(r.objective == m.objective(r.values));
    REQUIRE(m.violation(r.values) <= 1e-9);
    REQUIRE(r.bound <= r.objective);
    REQUIRE(r.bound >= r.objective - 1e-6);
  }
  CHECK(solved > 300);
  CHECK(without > 100);
}

TEST_CASE("numbers of too different sizes: no verdict is wrong beyond the tolerance") {
  std::size_t optimal = 0, infeasible = 0;
  for (std::uint64_t seed = 0; seed < test::num_cases(3000, 60'000); ++seed) {
    const mip_model m = test::harsh_binary_mip(seed);
    const double exact = test::least_objective(m, 1e-14), loose = test::least_objective(m, 2e-6);
    const mip_result r = branch_and_bound.solve(m);
    INFO("seed ", seed);
    if (r.status == mip_status::infeasible) {
      ++infeasible;
      REQUIRE(exact == infinite);
      continue;
    }
    ++optimal;
    const double error = 1e-6 * std::max(1.0, std::abs(r.objective));
    REQUIRE(r.status == mip_status::optimal);
    REQUIRE(m.violation(r.values) <= 1e-6);
    REQUIRE(r.objective <= exact + error);
    REQUIRE(r.objective >= loose - error);
    REQUIRE(r.bound <= exact + 1e-9 * std::max(1.0, std::abs(exact)));
  }
  CHECK(optimal > 500);
  CHECK(infeasible > 500);
}

TEST_CASE("continuous columns: a linear program has the corner that arithmetic says") {
  mip_model m;  // min −3x − 5y: x ≤ 4, 2y ≤ 12, 3x + 2y ≤ 18
  const auto x = m.add_column(-3, 0, infinite), y = m.add_column(-5, 0, infinite);
  m.add_row(-infinite, {{x, 1}}, 4);
  m.add_row(-infinite, {{y, 2}}, 12);
  m.add_row(-infinite, {{x, 3}, {y, 2}}, 18);
  const mip_result r = branch_and_bound.solve(m);
  REQUIRE(r.status == mip_status::optimal);
  CHECK(r.objective == doctest::Approx(-36));
  CHECK(r.values[0] == doctest::Approx(2));
  CHECK(r.values[1] == doctest::Approx(6));
}

TEST_CASE("free columns, an equality, and no finite optimum") {
  mip_model m;  // min |x − 2.5| as u + v over free x
  const auto x = m.add_column(0, -infinite, infinite);
  const auto u = m.add_column(1, 0, infinite), v = m.add_column(1, 0, infinite);
  const auto n = m.add_integer(0, -10, 10);
  m.add_row(2.5, {{x, 1}, {u, -1}, {v, 1}}, 2.5);
  m.add_row(0, {{x, 1}, {n, -1}}, 0);
  const mip_result r = branch_and_bound.solve(m);
  REQUIRE(r.status == mip_status::optimal);
  CHECK(r.objective == doctest::Approx(0.5));
  mip_model down;
  down.add_column(1, -infinite, 0);
  CHECK(branch_and_bound.solve(down).status == mip_status::unbounded);
}

TEST_CASE("a start is kept unless something better is found; one that breaks the model is not used") {
  mip_model m;
  const auto x = m.add_integer(-1, 0, 5);
  m.add_row(-infinite, {{x, 2}}, 7);
  mip_options options;
  options.run.work_limit = 0;
  options.start = {2};
  CHECK(branch_and_bound.solve(m, options).status == mip_status::feasible);
  CHECK(branch_and_bound.solve(m, options).objective == -2);
  options.start = {4};
  CHECK(branch_and_bound.solve(m, options).status == mip_status::no_solution);
  options.start = {3};
  options.run.work_limit = run_control::no_work_limit;
  CHECK(branch_and_bound.solve(m, options).objective == -3);
}

TEST_CASE("limits, a gap that is enough, and what a callback throws") {
  const mip_model m = knapsack(60);
  mip_options options;
  options.run.work_limit = 3200;
  const mip_result few = branch_and_bound.solve(m, options);
  CHECK(few.nodes <= 3200 / work_of::move);
  CHECK(few.nodes > 100);
  CHECK(few.work >= 3200);
  CHECK(few.status == mip_status::feasible);
  CHECK(few.bound < few.objective);
  options.run.work_limit = run_control::no_work_limit;
  options.relative_gap = 0.01;
  const mip_result near = branch_and_bound.solve(m, options);
  CHECK(near.status == mip_status::optimal);
  CHECK(near.objective - near.bound <= 0.0101 * std::abs(near.objective));
  CHECK(near.bound <= near.objective);

  options.relative_gap = 0;
  options.run.time_limit = std::chrono::milliseconds(100);
  const auto start = std::chrono::steady_clock::now();
  CHECK(branch_and_bound.solve(m, options).status == mip_status::feasible);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::milliseconds(600));

  std::stop_source source;
  options.run = {};
  options.run.stop = source.get_token();
  options.on_incumbent = [&](std::span<const double>, double) { source.request_stop(); };
  const mip_result stopped = branch_and_bound.solve(m, options);
  CHECK(stopped.status == mip_status::feasible);
  CHECK(branch_and_bound.solve(m, options).status == mip_status::no_solution);
  options.run = {};
  options.on_incumbent = [](std::span<const double>, double) { throw std::runtime_error("enough"); };
  CHECK_THROWS_WITH((void)branch_and_bound.solve(m, options), "enough");
}

TEST_CASE("nothing to decide, and an impossible row without columns") {
  mip_model m;
  m.offset = 7;
  CHECK(branch_and_bound.solve(m).status == mip_status::optimal);
  CHECK(branch_and_bound.solve(m).objective == 7);
  m.add_row(1, {}, 2);
  CHECK(branch_and_bound.solve(m).status == mip_status::infeasible);
}
