// SPDX-License-Identifier: BSL-1.0
#include "remat/method/detail/solve_part.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "remat/method/refined.hpp"
#include "support/random_graph.hpp"

using namespace remat;

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
