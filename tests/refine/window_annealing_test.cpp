// SPDX-License-Identifier: BSL-1.0
#include "remat/refine/detail/window_annealing.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/method/evict.hpp"
#include "remat/refine/detail/large_neighbourhood.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/data.hpp"
#include "support/half_elsewhere.hpp"
#include "support/random_graph.hpp"

using namespace remat;
using namespace remat::detail;

TEST_CASE("disturbances find faster schedules than windows alone, the same ones for a seed and a limit of work") {
  const problem p = test::within(test::bundled_problem("unet5-b16-256"), 0.3);
  const solution start = evict(p);
  REQUIRE(start.plan);
  large_neighbourhood windows(p, {.widths = {16, 32, 64}, .steps = 2, .max_states = {300}});
  run_clock unlimited{run_control{}};
  windows.start(computes_of(*start.plan));
  REQUIRE(windows.run(unlimited));
  const double by_windows = check(p, schedule_computes(p, windows.computes())).time;

  run_control limits;
  limits.work_limit = 6'000'000;
  double times[2] = {};
  schedule plans[2];
  for (int i = 0; i < 2; ++i) {
    window_annealing search(p, 7);
    search.start(*start.plan, start.time);
    run_clock clock(limits);
    search.run(clock, 0);
    times[i] = search.best_time();
    plans[i] = search.best();
  }
  const check_report report = check(p, plans[0]);
  CHECK_MESSAGE(report.valid(), report.message());
  CHECK(report.time == times[0]);
  CHECK(times[0] < by_windows);
  CHECK(plans[0].steps == plans[1].steps);
}

TEST_CASE("it ends at its target, and keeps a schedule that cannot be better") {
  std::size_t at_target = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const problem p = test::within(test::random_problem(seed, {.operations = 30}), 0.7);
    const solution start = evict(p);
    if (!start.plan) continue;
    window_annealing search(p, seed);
    search.start(*start.plan, start.time);
    run_control limits;
    limits.work_limit = 200'000;
    run_clock clock(limits);
    search.run(clock, p.graph().needed_time * (1 + 1e-9));
    const check_report report = check(p, search.best());
    CHECK_MESSAGE(report.valid(), report.message());
    CHECK(report.time == search.best_time());
    CHECK(search.best_time() <= start.time);
    at_target += clock.work_done() < limits.work_limit / 2 ? 1U : 0U;
  }
  CHECK(at_target > 0);
}

TEST_CASE("several searches give the same answers on threads and by a crew") {
  const problem p = test::within(test::bundled_problem("unet5-b16-256"), 0.3);
  const solution start = evict(p);
  REQUIRE(start.plan);
  const auto found = [&](unsigned threads, crew* others) {
    run_control limits;
    limits.work_limit = 1'000'000;
    limits.threads = threads;
    limits.crew = others;
    run_clock clock(limits);
    std::vector<std::vector<std::uint32_t>> out;
    for (const window_searches::answer& one : anneal_windows_together(p, *start.plan, start.time, 0, clock)) {
      out.push_back(one.computes);
      if (!one.computes.empty()) CHECK(check(p, schedule_computes(p, one.computes)).time == one.time);
    }
    CHECK(clock.work_done() <= limits.work_limit);
    return out;
  };
  const auto here = found(1, nullptr);
  CHECK(here.size() == 2);
  CHECK(here[0] != here[1]);
  CHECK(found(2, nullptr) == here);
  test::half_elsewhere others({annealing_population<window_searches>::pieces()});
  CHECK(found(1, &others) == here);
  CHECK(others.sent["windows"] > 0);
}
