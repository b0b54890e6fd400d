// SPDX-License-Identifier: BSL-1.0
#include "remat/method/detail/own_method.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "remat/method/chen.hpp"
#include "remat/method/refined.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "support/random_graph.hpp"

using namespace remat;

TEST_CASE("improve says what the own method found, and what refinement gained") {
  std::uint32_t better = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const problem all = test::random_problem(seed, {.operations = 14, .once = 0});
    const problem p = all.with_budget(all.graph().baseline_peak * 7 / 10);
    solution s = chen_sqrt(p);
    if (!s.plan) continue;
    const double before = s.time;
    const run_control run{.work_limit = 32'000};
    run_clock clock(run);
    CHECK(detail::improve(by_refinement, p, s, {}, clock, "mine") != stop_reason::cancelled);
    REQUIRE(s.plan);
    CHECK(s.time <= before);
    REQUIRE(s.statistics.own.find<double>("own_time"));
    CHECK(*s.statistics.own.find<double>("own_time") == before);
    CHECK(s.statistics.own.find<std::string>("own_by")->rfind("chen_sqrt", 0) == 0);
    if (s.time == before) continue;
    ++better;
    CHECK(s.by.rfind("mine/refined/", 0) == 0);
  }
  CHECK(better > 0);
}

TEST_CASE("improve begins without a schedule, too, and obeys the limits") {
  const problem all = test::random_problem(3, {.operations = 14, .once = 0});
  const problem p = all.with_budget(all.graph().baseline_peak * 9 / 10);
  solution s;
  const run_control run{.work_limit = 16'000};
  run_clock clock(run);
  detail::improve(by_refinement, p, s, {}, clock, "mine");
  CHECK_FALSE(s.statistics.own.find<double>("own_time"));
  if (s.plan) CHECK(s.by.rfind("mine/refined/", 0) == 0);

  clock.work(16'000);
  solution none;
  CHECK(detail::improve(by_refinement, p, none, {}, clock, "mine") == stop_reason::work);
  CHECK_FALSE(none.plan);
}

TEST_CASE("the frame: the listed order first, then the method within its share, then improvement") {
  const problem all = test::random_problem(3, {.operations = 14, .once = 0});
  std::size_t calls = 0;
  const auto method = [&](run_clock& clock, solution&) -> detail::method_end {
    ++calls;
    CHECK(clock.work_left() == (calls == 1 ? 16'000U : 8'000U));
    clock.work(10);
    return {};
  };
  const run_control run{.work_limit = 16'000};
  const solution whole =
      detail::solve_by_own_method(all.with_budget(problem::unlimited), "mine", run, improvement{}, {}, method);
  CHECK(whole.by == "mine/no_remat");
  CHECK(whole.status == solve_status::optimal);
  CHECK(calls == 0);
  const problem tight = all.with_budget(all.graph().baseline_peak * 9 / 10);
  const solution own = detail::solve_by_own_method(tight, "mine", run, improvement{}, {}, method);
  CHECK(calls == 1);
  CHECK_FALSE(own.plan);
  CHECK(own.statistics.work == 10);
  const solution better =
      detail::solve_by_own_method(tight, "mine", run, by_refinement, {.opens_with_listed_order = false}, method);
  CHECK(calls == 2);
  if (better.plan) CHECK(better.by.rfind("mine/refined/", 0) == 0);
  CHECK(better.statistics.work >= 10);
}

TEST_CASE("a solver as a part: its work counts in the whole, and its progress bears the name of the whole") {
  const problem all = test::random_problem(5, {.operations = 60, .once = 0});
  const problem p = all.with_budget(all.graph().baseline_peak * 7 / 10);
  std::vector<std::string> solvers, stages;
  run_control run;
  run.work_limit = 64'000;
  run.on_progress = [&](const progress& news) {
    solvers.emplace_back(news.solver);
    stages.emplace_back(news.stage);
    CHECK(news.best_objective <= 5);
    CHECK(news.lower_bound >= 2);
  };
  run_clock clock(run, "whole");
  const double best = 5, bound = 2;
  clock.watch(best, bound);
  const solution s = detail::solve_part(clock, 0.5, refined, p, {});
  CHECK(s.statistics.work <= 32'000);
  CHECK(clock.work_done() == s.statistics.work);
  REQUIRE(!solvers.empty());
  for (const std::string& name : solvers) CHECK(name == "whole");
  for (const std::string& stage : stages) CHECK(stage == "refined");
}

TEST_CASE("the answer of the whole takes over what a part has proven") {
  solution best, part;
  best.lower_bound = 3;
  part.lower_bound = 4;
  part.proven = true;
  detail::take_bound(best, part);
  CHECK(best.lower_bound == 4);
  CHECK(best.proven);
  CHECK(best.message.empty());
  part.status = solve_status::infeasible;
  part.message = "why";
  detail::take_bound(best, part);
  CHECK(best.message == "why");
}
