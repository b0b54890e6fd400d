// SPDX-License-Identifier: BSL-1.0
#include "remat/method/hiremate/impl/hierarchical_ilp.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "remat/method/hiremate/impl/level_model.hpp"
#include "remat/method/hiremate/impl/level_problem.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "support/lying_backend.hpp"
#include "support/random_level.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test
using choices = std::vector<level_problem::choice>;

constexpr double infinite = std::numeric_limits<double>::infinity();

/// What must hold of every answer.
void check_answer(const level_problem& p, std::int64_t budget, const level_solution& s) {
  INFO(s.message);
  if (!s.found) {
    CHECK(s.choices.empty());
    CHECK(s.time == infinite);
    return;
  }
  const level_report r = simulate_level(p, s.choices);
  CHECK(r.legal);
  CHECK(r.time == s.time);
  CHECK(r.peak_bytes == s.peak_bytes);
  CHECK(r.peak_bytes <= budget);
  CHECK(s.status != mip_status::infeasible);
  CHECK(s.status != mip_status::no_solution);
}

}  // namespace

TEST_CASE("the solver: starts count, the answer is never worse, and the same every time") {
  std::size_t found = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const level_problem p = test::random_training_level(seed + 9000, 3, 3);
    const std::int64_t budget = test::budget_of(p, 40);
    INFO("seed ", seed);
    hierarchical_ilp_options options;
    options.run.work_limit = 48'000;
    const level_solution plain = hierarchical_ilp(branch_and_bound, p, budget, options);
    check_answer(p, budget, plain);
    options.starts = {test::run_once(p, 0), test::run_once(p, 1), plain.choices};
    double start = infinite;
    for (const choices& c : options.starts) {
      const level_report r = simulate_level(p, c);
      if (r.legal && r.peak_bytes <= budget) start = std::min(start, r.time);
    }
    options.warm_start = seed % 2 == 0;
    const level_solution s = hierarchical_ilp(branch_and_bound, p, budget, options);
    check_answer(p, budget, s);
    REQUIRE(s.time <= start);
    REQUIRE(s.found == plain.found);
    if (plain.status == mip_status::optimal) {
      REQUIRE(s.status == mip_status::optimal);
      REQUIRE(s.time == plain.time);
      REQUIRE(s.lower_bound <= s.time * (1 + 1e-6));
      REQUIRE(s.lower_bound >= s.time * (1 - 1e-6));
    }
    const level_solution t = hierarchical_ilp(branch_and_bound, p, budget, options);
    REQUIRE(t.choices == s.choices);
    REQUIRE(t.message == s.message);
    found += s.found;
  }
  MESSAGE(found, " with an answer");
  CHECK(found > 30);
}

TEST_CASE("a backend that lies: no invalid answer") {
  const level_problem p = test::random_training_level(9005, 4, 3);
  const std::int64_t budget = test::budget_of(p, 60);
  const level_solution proper = hierarchical_ilp(branch_and_bound, p, budget, {});
  REQUIRE(proper.found);
  for (const mip_status says :
       {mip_status::optimal, mip_status::infeasible, mip_status::failed, mip_status::feasible}) {
    const level_solution s = hierarchical_ilp(test::lying_backend{says}, p, budget, {});
    check_answer(p, budget, s);
    CHECK(s.message.find("were no schedules") != std::string::npos);
    const level_solution t = hierarchical_ilp(test::lying_backend{says}, p, budget, {.starts = {proper.choices}});
    check_answer(p, budget, t);
    CHECK(t.found);
    CHECK(t.time <= proper.time);
  }
}

TEST_CASE("budgets and limits: nothing possible, nothing to do, stopped, too large") {
  const level_problem p = test::random_training_level(9005, 4, 3);
  for (const std::int64_t budget : {std::int64_t{-5}, std::int64_t{0}, std::int64_t{5}}) {
    const level_solution s = hierarchical_ilp(branch_and_bound, p, budget, {});
    CHECK_FALSE(s.found);
    CHECK(s.status == mip_status::infeasible);
    CHECK(s.lower_bound == infinite);
    CHECK_FALSE(level_model(p, budget).encode(test::run_once(p, 0)).has_value());
  }
  // With room for everything the program decides on variants alone.
  const level_model wide(p, 1'000'000);
  CHECK(wide.first_phase() == p.runs.size());
  const level_solution s = hierarchical_ilp(branch_and_bound, p, 1'000'000, {});
  CHECK(s.status == mip_status::optimal);
  CHECK(s.choices.size() == p.runs.size());

  std::stop_source source;
  source.request_stop();
  const std::int64_t tight = test::budget_of(p, 50);
  for (const run_control& run :
       {run_control{.stop = source.get_token()}, run_control{.time_limit = std::chrono::nanoseconds(0)}}) {
    hierarchical_ilp_options options;
    options.run = run;
    const level_solution t = hierarchical_ilp(branch_and_bound, p, tight, options);
    CHECK_FALSE(t.found);
    CHECK(t.status == mip_status::no_solution);
    CHECK(t.message == "stopped before the integer program");
  }
  const level_solution enough =
      hierarchical_ilp(branch_and_bound, p, 1'000'000, {.starts = {test::run_once(p, 0)}, .gap = 100});
  CHECK(enough.message.find("within the gap") != std::string::npos);
  const level_solution large = hierarchical_ilp(branch_and_bound, p, tight, {.max_columns = 50});
  CHECK(large.message.find("more than max_columns") != std::string::npos);
  CHECK(large.status == mip_status::no_solution);
  const level_solution larger = hierarchical_ilp(branch_and_bound, p, tight, {.max_columns = 1});
  CHECK(larger.message.find("more than max_columns") != std::string::npos);

  const level_solution nothing = hierarchical_ilp(branch_and_bound, level_problem{}, 0, {});
  CHECK(nothing.status == mip_status::optimal);
  CHECK(nothing.found);
  CHECK(nothing.time == 0);
}
