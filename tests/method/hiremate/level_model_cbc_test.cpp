// SPDX-License-Identifier: BSL-1.0
#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "remat/method/hiremate/impl/hierarchical_ilp.hpp"
#include "remat/method/hiremate/impl/level_model.hpp"
#include "remat/method/hiremate/impl/level_problem.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/mip/cbc.hpp"
#include "support/processor_time.hpp"
#include "support/random_level.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

/// Six tenths of what the level takes with the first variant of every run.
std::int64_t budget_of(const level_problem& p) { return simulate_level(p, test::run_once(p, 0)).peak_bytes * 6 / 10; }

}  // namespace

TEST_CASE("random levels: CBC says of the integer program what the own branch and bound says") {
  std::size_t solved = 0, infeasible = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const level_problem p = test::random_training_level(seed + 5000, 3, 3);
    const level_model program(p, budget_of(p));
    const mip_result r = cbc.solve(program.model()), own = branch_and_bound.solve(program.model());
    INFO("seed ", seed);
    REQUIRE(r.status == own.status);
    infeasible += own.status == mip_status::infeasible;
    if (own.status != mip_status::optimal) continue;
    ++solved;
    REQUIRE(r.objective == doctest::Approx(own.objective));
    const level_report report = simulate_level(p, program.decode(r.values));
    REQUIRE(report.legal);
    REQUIRE(report.peak_bytes <= budget_of(p));
  }
  CHECK(solved > 5);
  CHECK(infeasible > 5);
}

TEST_CASE("a level too large to be solved at once: within its time, and never worse than its start") {
  const level_problem p = test::random_training_level(5002, 12, 4);
  const std::int64_t budget = budget_of(p);
  hierarchical_ilp_options options;
  options.run.time_limit = std::chrono::seconds(2);
  const double begin = test::processor_seconds();
  const level_solution s = hierarchical_ilp(cbc, p, budget, options);
  CHECK(test::processor_seconds() - begin < 5);
  INFO(s.message);
  REQUIRE(s.found);
  const level_report report = simulate_level(p, s.choices);
  CHECK(report.legal);
  CHECK(report.time == s.time);
  CHECK(report.peak_bytes <= budget);
  CHECK(s.lower_bound <= s.time * (1 + 1e-9));
  options.starts = {s.choices};
  options.run.time_limit = std::chrono::milliseconds(200);
  CHECK(hierarchical_ilp(cbc, p, budget, options).time <= s.time);
}
