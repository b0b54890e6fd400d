// SPDX-License-Identifier: BSL-1.0
#include "remat/solver/detail/parts.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <vector>

using namespace remat;

TEST_CASE("news of a part come in the name of the whole, with the better of both") {
  run_control run;
  run.time_limit = std::chrono::seconds(7);
  std::vector<progress> heard;
  run.on_progress = [&](const progress& news) { heard.push_back(news); };
  const run_clock clock(run);
  solution best;
  best.time = 5;
  best.lower_bound = 2;
  const auto relay = detail::relay_progress("whole", clock, best);
  REQUIRE(relay);
  relay({.solver = "part", .stage = "inner", .best_objective = 6, .lower_bound = 1, .done = 3, .total = 4});
  best.time = 9;
  relay({.solver = "part", .best_objective = 8, .lower_bound = 3});
  REQUIRE(heard.size() == 2);
  CHECK(heard[0].solver == "whole");
  CHECK(heard[0].stage == "part");
  CHECK(heard[0].best_objective == 5);
  CHECK(heard[0].lower_bound == 2);
  CHECK(heard[0].done == 3);
  CHECK(heard[0].time_limit == std::chrono::seconds(7));
  CHECK(heard[1].best_objective == 8);
  CHECK(heard[1].lower_bound == 3);
}

TEST_CASE("without a listener there is no callback") {
  const run_control run;
  const run_clock clock(run);
  const solution best;
  CHECK_FALSE(detail::relay_progress("whole", clock, best));
}

TEST_CASE("work in operations of eviction passes, there and back") {
  run_control run;
  CHECK(detail::in_evictions(run).work_limit == run_control::no_work_limit);
  run.work_limit = 10;
  CHECK(detail::in_evictions(run).work_limit == 10 * detail::evictions_per_work);
  run.work_limit = run_control::no_work_limit - 1;
  CHECK(detail::in_evictions(run).work_limit < run_control::no_work_limit);
  CHECK(detail::in_evictions(run).work_limit > run_control::no_work_limit / 2);
  CHECK(detail::work_of_evictions(0) == 0);
  CHECK(detail::work_of_evictions(1) == 1);
  CHECK(detail::work_of_evictions(10 * detail::evictions_per_work) == 10);
}
