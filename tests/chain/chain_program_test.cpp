// SPDX-License-Identifier: BSL-1.0
#include "remat/chain/detail/chain_program.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stop_token>
#include <vector>

#include "remat/hierarchy/detail/depth_chains.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/block_stack.hpp"
#include "support/random_sub_graphs.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

/// For each stage, ways that come from options: the ones that keep nothing between forward and backward.
std::vector<std::vector<stage_way>> lean_ways(const flat_graph& g, const forward_line& line, const stage_chain& chain) {
  std::vector<std::uint32_t> order = line.operations;
  order.insert(order.end(), line.rest.begin(), line.rest.end());
  sub_graph_extractor extract(g, order, static_cast<std::uint32_t>(line.operations.size()));
  std::vector<std::vector<stage_way>> out(std::size_t{chain.length()} + 1);
  for (std::uint32_t s = 1; s <= chain.length(); ++s) {
    if (chain.backward(s).empty()) continue;
    stage_way way;
    way.forward.assign(chain.forward(s).begin(), chain.forward(s).end());
    for (const std::uint32_t o : chain.forward(s))
      if (!chain.runs_once(o)) way.backward.push_back(o);
    way.backward.insert(way.backward.end(), chain.backward(s).begin(), chain.backward(s).end());
    out[s].push_back(std::move(way));
  }
  return out;
}

}  // namespace

TEST_CASE("one table has schedules for all budgets: faster ones need more memory, all are legal") {
  std::size_t entries = 0, of_options = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    const problem& p = d.whole;
    if (d.hierarchy.num_forward == 0) continue;
    const forward_line line = line_of(p.graph(), d.hierarchy);
    chain_program program(p.graph(), line, cuts_at_depth(d.hierarchy, 1));
    INFO("seed ", seed);
    for (const bool with_ways : {false, true}) {
      if (with_ways) {
        if (d.mixed_sums()) continue;
        program.set_ways(lean_ways(p.graph(), line, program.chain()));
        of_options += program.num_further();
      }
      run_control run;
      run_clock clock(run);
      REQUIRE(program.fill(clock, {}) == fill_outcome::filled);
      CHECK(clock.work_done() > 0);
      double lost = -program.flat_time();  // the last stage need not run its forward twice
      std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
      for (auto e = program.fastest(); e; e = program.slower_than(*e)) {
        CHECK(e->lost >= lost);
        CHECK(e->time == doctest::Approx(program.flat_time() + e->lost));
        CHECK(e->bytes < bytes);
        CHECK(program.lost_within(e->bytes) == doctest::Approx(e->lost));
        lost = e->lost;
        bytes = e->bytes;
        for (const bool whole : {true, false}) {
          const schedule plan = schedule_computes(p, program.expand(program.steps(*e), whole));
          CHECK(check(p.with_budget(problem::unlimited), plan).valid());
        }
        ++entries;
      }
      CHECK(program.lost_within(-1) == std::numeric_limits<double>::infinity());
    }
  }
  CHECK(entries > 150);
  CHECK(of_options > 50);
}

TEST_CASE("the next schedule takes at least so many bytes less") {
  const problem p = test::stack_problem(test::stack_kind::residual, 6);
  const operation_hierarchy h = partition_at_levels(p.graph());
  chain_program program(p.graph(), line_of(p.graph(), h), cuts_at_depth(h, h.depth()));
  run_control run;
  run_clock clock(run);
  REQUIRE(program.fill(clock, {}) == fill_outcome::filled);
  std::vector<std::int64_t> all, some;
  for (auto e = program.fastest(); e; e = program.slower_than(*e)) all.push_back(e->bytes);
  REQUIRE(all.size() > 4);
  const std::int64_t step = (all.front() - all.back()) / 2;
  for (auto e = program.fastest(); e; e = program.slower_than(*e, step)) {
    if (!some.empty()) CHECK(e->bytes <= some.back() - step + 1 + program.flat_bytes() / 500);
    some.push_back(e->bytes);
  }
  CHECK(some.front() == all.front());
  CHECK(some.size() < all.size());
}

TEST_CASE("a table that is too large, a stop, and limits on memory and time") {
  const problem p = test::stack_problem(test::stack_kind::decoder, 4);
  const operation_hierarchy h = partition_at_levels(p.graph());
  chain_program program(p.graph(), line_of(p.graph(), h), cuts_at_depth(h, h.depth()));
  run_control run;
  run_clock clock(run);
  chain_program_options options;
  options.table_bytes = 0;
  CHECK(program.fill(clock, options) == fill_outcome::too_large);
  std::stop_source source;
  source.request_stop();
  run.stop = source.get_token();
  run_clock stopped(run);
  CHECK(program.fill(stopped, {}) == fill_outcome::stopped);
  options = {};
  options.max_bytes = p.graph().baseline_peak / 2;
  REQUIRE(program.fill(clock, options) == fill_outcome::filled);
  for (auto e = program.fastest(); e; e = program.slower_than(*e)) CHECK(e->bytes <= options.max_bytes);
  // A limit on the time lost leaves out the slow schedules alone.
  options = {};
  REQUIRE(program.fill(clock, options) == fill_outcome::filled);
  std::size_t fast = 0, all = 0, limited = 0;
  const double most = program.flat_time() * 0.05;
  for (auto e = program.fastest(); e; e = program.slower_than(*e)) {
    ++all;
    fast += e->lost <= most;
  }
  options.max_lost = most;
  REQUIRE(program.fill(clock, options) == fill_outcome::filled);
  for (auto e = program.fastest(); e; e = program.slower_than(*e)) limited += e->lost <= most;
  CHECK(limited == fast);
  CHECK(fast < all);
}
