// SPDX-License-Identifier: BSL-1.0
#include "remat/method/hiremate/detail/group_level.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/method/hiremate/detail/level_search.hpp"
#include "remat/method/rockmate/detail/sub_solvers.hpp"
#include "remat/schedule/check.hpp"
#include "support/random_sub_graphs.hpp"

namespace {
using namespace remat;
using namespace remat::detail;  // NOLINT: a test
}  // namespace

TEST_CASE("a schedule of a group's level is one of the group as a problem of operations") {
  std::size_t schedules = 0, options = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    if (d.mixed_sums()) continue;
    sub_graph_extractor extract(d.whole.graph(), d.hierarchy);
    for (std::size_t g = 1; g < d.hierarchy.groups.size(); ++g) {
      const sub_graph part = extract(g);
      const sub_graph_runs runs(part);
      const std::vector<level_child> children = children_of(d.hierarchy, g, extract);
      const std::int64_t peak = d.whole.graph().baseline_peak * 2, save = runs.held_at_turn(runs.keep_everything());
      const group_level level(d.whole.graph(), children, runs, peak, save);
      INFO("seed ", seed, ", group ", g);
      CHECK(level.builder().num_children() == children.size());
      CHECK(level.flat().budget() == peak);
      level_search_options searching;
      run_control run;
      run_clock clock(run);
      search_level(level.builder(), children, peak, clock, searching,
                   [&](const std::vector<level_problem::choice>& choices) {
                     const schedule plan = level.expand(choices);
                     const check_report r = check(level.flat().with_budget(problem::unlimited), plan);
                     REQUIRE(r.valid());
                     ++schedules;
                     options += runs.way_of(plan).has_value();
                     return r.time;
                   });
    }
  }
  CHECK(schedules > 50);
  CHECK(options == schedules);
}
