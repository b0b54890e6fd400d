// SPDX-License-Identifier: BSL-1.0

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "remat/chain/detail/chain_search.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/method/hiremate/impl/chains.hpp"
#include "remat/schedule/check.hpp"
#include "support/answer.hpp"
#include "support/block_stack.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

std::int64_t whole(const figures& f, const char* name) {
  const auto* value = f.find<std::int64_t>(name);
  REQUIRE(value);
  return *value;
}

problem half(test::stack_kind kind, std::uint32_t blocks) {
  const problem p = test::stack_problem(kind, blocks);
  return p.with_budget(p.graph().baseline_peak / 2);
}

hierarchy_chains_options quick() {
  hierarchy_chains_options options;
  options.sub_graphs.peaks = 1;
  options.sub_graphs.moves = 50;
  options.sub_graphs.cache = make_way_cache();
  return options;
}

}  // namespace

TEST_CASE("options of stages make better schedules; like stages share them; every part is named") {
  const problem p = half(test::stack_kind::decoder, 8);
  hierarchy_chains_options options = quick();
  hierarchy_chains chains(p, options);
  chains.add("levels", partition_at_levels(p.graph()), true);
  chains.add("repeats", partition_at_repeats(p.graph()));
  run_control run;
  run.work_limit = 8'000'000;
  run_clock clock(run);
  solution plain;
  chains.solve_plain(clock, plain, "mine");
  REQUIRE(plain.has_schedule());
  CHECK((plain.by == "mine/levels/chain" || plain.by == "mine/repeats/chain"));
  solution best = plain;
  chains.solve_with_ways(clock, best, "mine");
  CHECK(best.time <= plain.time);
  CHECK(whole(chains.figures_of("levels"), "chains_with_ways") +
            whole(chains.figures_of("repeats"), "chains_with_ways") >
        0);
  const double before = best.time;
  chains.solve_finer(clock, best, "mine");
  CHECK(best.time <= before);
  const check_report r = check(p, *best.plan);
  CHECK(r.valid());
  CHECK(r.time == best.time);
  for (const char* name : {"levels", "repeats"}) {
    const figures f = chains.figures_of(name);
    CHECK(whole(f, "chains") > 0);
    CHECK(whole(f, "chains_with_ways") <= whole(f, "chains"));
    if (f.find<double>("time")) {
      CHECK(*f.find<double>("time") >= best.time);
      CHECK(*f.find<double>("table_time") > 0);
      CHECK(whole(f, "stages") >= 1);
    }
  }
  CHECK(chains.figures_of("unknown").empty());
}

TEST_CASE("nothing is left out silently") {
  const problem p = half(test::stack_kind::residual, 6);
  run_control run;
  {
    hierarchy_chains_options options = quick();
    options.max_effort = 0;
    hierarchy_chains chains(p, options);
    chains.add("levels", partition_at_levels(p.graph()), true);
    run_clock clock(run);
    solution best;
    chains.solve_with_ways(clock, best, "mine");
    const figures f = chains.figures_of("levels");
    CHECK(whole(f, "chains_refused") > 0);
    CHECK(whole(f, "solves") == 0);
  }
  {
    hierarchy_chains_options options = quick();
    options.table_bytes = 0;
    hierarchy_chains chains(p, options);
    chains.add("levels", partition_at_levels(p.graph()), true);
    run_clock clock(run);
    solution best;
    chains.solve_plain(clock, best, "mine");
    CHECK(!best.has_schedule());
    CHECK(whole(chains.figures_of("levels"), "tables_refused") > 0);
  }
  {
    hierarchy_chains_options options = quick();
    hierarchy_chains chains(p, options);
    chains.add("levels", partition_at_levels(p.graph()), true);
    run.work_limit = 16;
    run_clock clock(run);
    solution best;
    chains.solve_plain(clock, best, "mine");
    chains.solve_with_ways(clock, best, "mine");
    const figures own = chains.figures_of("levels");
    CHECK(whole(own, "chains_left") == whole(own, "chains"));
  }
}
