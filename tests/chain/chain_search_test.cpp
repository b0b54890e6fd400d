// SPDX-License-Identifier: BSL-1.0
#include "remat/chain/detail/chain_search.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/core/error.hpp"
#include "remat/hierarchy/check.hpp"
#include "remat/hierarchy/detail/depth_chains.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/schedule/check.hpp"
#include "support/block_stack.hpp"
#include "support/exhaustive.hpp"
#include "support/random_parts.hpp"

namespace {
using namespace remat;
using namespace remat::detail;  // NOLINT: a test
}  // namespace

TEST_CASE("the levels of cuts are a hierarchy, each level a part of the cuts of the finer one") {
  std::size_t groups = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    const problem p = test::random_divided_step(seed).whole;
    const operation_hierarchy h = partition_at_levels(p.graph());
    INFO("seed ", seed);
    REQUIRE(check_hierarchy(p.graph(), h).valid());
    groups += h.groups.size() - 1;
    std::vector<std::uint32_t> listed;
    for (std::uint32_t i = 0; i < h.num_forward; ++i) listed.push_back(h.order[i]);
    CHECK(std::is_sorted(listed.begin(), listed.end()));
    const forward_line line = line_of(p.graph(), h);
    // Every group is a segment of one of Rotor's levels.
    const std::vector<cut_list> levels = cut_levels(line, line.operations.size());
    for (std::size_t k = 1; k < h.groups.size(); ++k) {
      const operation_hierarchy::group& g = h.groups[k];
      const bool is_segment = std::any_of(levels.begin(), levels.end(), [&](const cut_list& cuts) {
        const auto at = std::lower_bound(cuts.begin(), cuts.end(), g.forward_begin);
        const auto next = g.forward_begin == 0 ? cuts.begin() : at == cuts.end() ? at : at + 1;
        const bool begins = g.forward_begin == 0 || (at != cuts.end() && *at == g.forward_begin);
        const bool ends = next == cuts.end() ? g.forward_end == h.num_forward : *next == g.forward_end;
        return begins && ends;
      });
      CHECK(is_segment);
    }
  }
  CHECK(groups > 100);
}

TEST_CASE("forward marks of a wrong number are refused") {
  const problem p = test::stack_problem(test::stack_kind::residual, 4);
  CHECK_THROWS_AS(static_cast<void>(partition_at_levels(p.graph(), {1, 0})), bad_argument);
}

TEST_CASE("the chains of a hierarchy: no repetition, at most so many stages, short ones first") {
  const problem p = test::stack_problem(test::stack_kind::decoder, 8);
  const operation_hierarchy h = partition_at_levels(p.graph());
  const forward_line line = line_of(p.graph(), h);
  for (const std::size_t most : {1U, 7U, 40U, 1000U}) {
    const std::vector<cut_list> chains = chains_of(h, line, most);
    REQUIRE(!chains.empty());
    for (std::size_t i = 0; i < chains.size(); ++i) {
      CHECK(chains[i].size() + 1 <= most);
      CHECK(std::is_sorted(chains[i].begin(), chains[i].end()));
      if (i > 0) CHECK(chains[i - 1] != chains[i]);
      if (i > 0) CHECK(chains[i - 1].size() <= chains[i].size());
    }
    if (most == 1000)
      for (std::uint32_t d = 1; d <= h.depth() + 1; ++d)
        CHECK(std::find(chains.begin(), chains.end(), cuts_at_depth(h, d)) != chains.end());
  }
}

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
    run_control run;
    run_clock clock(run);
    const chain_search_result r = search_chain(p, program, std::numeric_limits<double>::infinity(), clock);
    INFO("seed ", seed);
    REQUIRE(r.plan.has_value() == (r.time < std::numeric_limits<double>::infinity()));
    if (!r.plan) continue;
    const check_report report = check(p, *r.plan);
    REQUIRE(report.valid());
    REQUIRE(report.time == r.time);
    REQUIRE(r.time >= least * (1 - 1e-12));
    ++found;
    same += r.time <= least * (1 + 1e-12);
    // Schedules far slower than the best known one are not tried.
    const chain_search_result none = search_chain(p, program, p.graph().needed_time, clock);
    REQUIRE(none.tried <= r.tried);
  }
  CHECK(found > 5);
  CHECK(same > 3);
}

TEST_CASE("a table that is too large is reported") {
  const problem free = test::stack_problem(test::stack_kind::residual, 4);
  const problem p = free.with_budget(free.graph().baseline_peak / 2);
  const operation_hierarchy h = partition_at_levels(p.graph());
  chain_program program(p.graph(), line_of(p.graph(), h), cuts_at_depth(h, 1));
  run_control run;
  run_clock clock(run);
  chain_search_options options;
  options.table_bytes = 0;
  const chain_search_result r = search_chain(p, program, std::numeric_limits<double>::infinity(), clock, options);
  CHECK(r.too_large);
  CHECK(!r.plan);
  CHECK(r.tried == 0);
}
