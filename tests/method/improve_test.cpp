// SPDX-License-Identifier: BSL-1.0
#include "remat/method/detail/improve.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "remat/method/chen.hpp"
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
    const run_control run{.work_limit = 2000};
    run_clock clock(run);
    CHECK(detail::improve(p, s, {}, clock, "mine") != stop_reason::cancelled);
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
  const run_control run{.work_limit = 1000};
  run_clock clock(run);
  detail::improve(p, s, {}, clock, "mine");
  CHECK_FALSE(s.statistics.own.find<double>("own_time"));
  if (s.plan) CHECK(s.by.rfind("mine/refined/", 0) == 0);

  clock.work(1000);
  solution none;
  CHECK(detail::improve(p, none, {}, clock, "mine") == stop_reason::work);
  CHECK_FALSE(none.plan);
}
