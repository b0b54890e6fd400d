// SPDX-License-Identifier: BSL-1.0
#include "remat/chain/detail/chain_search.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "remat/bound/least_memory.hpp"
#include "remat/hierarchy/detail/depth_chains.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/schedule/check.hpp"
#include "support/block_stack.hpp"
#include "support/exhaustive.hpp"
#include "support/random_sub_graphs.hpp"

namespace {
using namespace remat;
using namespace remat::detail;  // NOLINT: a test
}  // namespace

TEST_CASE("a chain's schedule is checked, within the budget, and never better than the optimum") {
  std::size_t found = 0, same = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    if (d.hierarchy.num_forward == 0) continue;
    const problem& free = d.whole;
    if (free.graph().num_operations + free.graph().outputs.values.size() > 26) continue;
    const std::int64_t low = largest_working_set(free).bytes, high = free.graph().baseline_peak;
    const problem p = free.with_budget(low + (high - low) * 3 / 4);
    const double least = test::least_time(p);
    chain_program program(p.graph(), line_of(p.graph(), d.hierarchy),
                          cuts_at_depth(d.hierarchy, d.hierarchy.depth() + 1));
    run_clock clock({});
    chain_best best;
    std::size_t offers = 0, fewer = 0;
    const auto take = [&](schedule plan, const check_report& r, const chain_program::entry& e) {
      ++offers;
      best.take(std::move(plan), r, e);
    };
    const chain_search_end end = search_chain(
        p, program, {}, clock, [&] { return best.time(); }, take);
    INFO("seed ", seed);
    REQUIRE(end.table == fill_outcome::filled);
    REQUIRE(best.plan.has_value() == (offers > 0));
    if (!best.plan) continue;
    REQUIRE(check(p, *best.plan).time == best.time());
    REQUIRE(best.time() >= least * (1 - 1e-12));
    ++found;
    same += best.time() <= least * (1 + 1e-12);
    // Schedules far slower than the best known one are not tried.
    search_chain(
        p, program, {}, clock, [&] { return p.graph().needed_time; },
        [&](const schedule&, const check_report&, const chain_program::entry&) { ++fewer; });
    REQUIRE(fewer <= offers);
  }
  CHECK(found > 5);
  CHECK(same > 3);
}

TEST_CASE("a table that is too large is reported") {
  const problem free = test::stack_problem(test::stack_kind::residual, 4);
  const problem p = free.with_budget(free.graph().baseline_peak / 2);
  const operation_hierarchy h = partition_at_levels(p.graph());
  chain_program program(p.graph(), line_of(p.graph(), h), cuts_at_depth(h, 1));
  run_clock clock({});
  chain_search_options options;
  options.table_bytes = 0;
  const auto unknown = [] { return std::numeric_limits<double>::infinity(); };
  const auto refuse = [](const schedule&, const check_report&, const chain_program::entry&) { CHECK(false); };
  const chain_search_end end = search_chain(p, program, options, clock, unknown, refuse);
  CHECK(end.table == fill_outcome::too_large);
  CHECK_FALSE(end.is_filled);
  // A budget below what always stands: nothing is filled.
  const chain_search_end none = search_chain(p.with_budget(0), program, {}, clock, unknown, refuse);
  CHECK_FALSE(none.is_filled);
}
