// SPDX-License-Identifier: BSL-1.0
#include "remat/chain/detail/stage_ways.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "remat/chain/detail/slot_table.hpp"
#include "remat/hierarchy/detail/find_ways.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/method/rockmate/detail/sub_solvers.hpp"
#include "remat/method/rotor.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/long_run.hpp"
#include "support/random_graph.hpp"

namespace {

using remat::chain_action;
using remat::chain_step;
using remat::problem;
using namespace remat::detail;

cut_list random_cuts(const forward_line& line, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  cut_list cuts;
  for (std::uint32_t i = 1; i < line.operations.size(); ++i)
    if (engine() % 3 == 0) cuts.push_back(i);
  return cuts;
}

/// Options of every stage, as `rockmate` finds them.
std::vector<std::vector<stage_way>> options_of(const problem& p, const forward_line& line, const stage_chain& chain) {
  std::vector<std::uint32_t> order(line.operations);
  order.insert(order.end(), line.rest.begin(), line.rest.end());
  sub_graph_extractor extract(p.graph(), order, static_cast<std::uint32_t>(line.operations.size()));
  std::vector<sub_graph> parts;
  std::vector<std::uint32_t> stages;
  for (std::uint32_t s = 1; s <= chain.length(); ++s) {
    std::vector<std::uint32_t> operations(chain.forward(s).begin(), chain.forward(s).end());
    operations.insert(operations.end(), chain.backward(s).begin(), chain.backward(s).end());
    parts.push_back(extract(operations));
    CHECK(parts.back().operations == operations);
    const sub_graph_runs runs(parts.back());
    std::vector<std::uint32_t> all(operations.size());
    std::iota(all.begin(), all.end(), 0U);
    const std::span<const std::uint32_t> every(all);
    if (runs.measure(every.first(runs.num_forward()), every.subspan(runs.num_forward()))) {
      stages.push_back(s);
    } else {
      parts.pop_back();
    }
  }
  way_search search;
  search.moves = 50;
  search.peaks = 1;
  search.max_budgets = 5;
  remat::run_clock clock({});
  const way_table table = find_ways(parts, search, default_sub_solvers{}, clock);
  std::vector<std::vector<stage_way>> out(chain.length() + 1);
  for (std::size_t i = 0; i < parts.size(); ++i)
    for (const sub_graph_way& o : table.ways[i]) {
      stage_way way;
      for (const std::uint32_t k : o.forward) way.forward.push_back(parts[i].operations[k]);
      for (const std::uint32_t k : o.backward) way.backward.push_back(parts[i].operations[k]);
      out[stages[i]].push_back(std::move(way));
    }
  return out;
}

TEST_CASE("the first way of each stage is what the chain says, to the byte") {
  int stages = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    remat::test::random_graph_options options;
    options.operations = 20;
    options.backward = 90;
    options.accumulate = 0;
    options.once = seed % 3 == 0 ? 10 : 0;
    const problem p = remat::test::random_problem(seed, options);
    const forward_line line = find_forward_line(p.graph());
    const stage_chain chain(p.graph(), line, random_cuts(line, seed));
    const staged_ways ways(p.graph(), chain, {});
    std::vector<chain_step> steps;
    for (std::uint32_t s = 1; s <= chain.length(); ++s) {
      CAPTURE(s);
      ++stages;
      REQUIRE(ways.ways(s).size() == 1);
      const measured_way& m = ways.measured(s, 0);
      const double last = s == chain.length() ? chain[s].forward_time : chain[s].last_forward_time;
      CHECK(m.time == doctest::Approx(chain[s].forward_time + chain[s].backward_time));
      CHECK(m.last_time == doctest::Approx(last + chain[s].backward_time));
      CHECK(m.forward_peak == chain[s].forward_peak);
      CHECK(m.last_forward_peak == chain[s].last_forward_peak);
      CHECK(m.backward_peak == chain[s].backward_peak);
      for (std::uint32_t t = s; t <= chain.length(); ++t) CHECK(m.saved[t] == chain.saved_bytes(s, t));
      steps.push_back({chain_action::forward_all, s, 0});
    }
    for (std::uint32_t s = chain.length(); s >= 1; --s) steps.push_back({chain_action::backward, s, 0});
    CHECK(ways.expand(steps) == chain.expand(steps));
  }
  CHECK(stages > 1000);
}

TEST_CASE("every way of every stage is legal beside any others, with and without a forward that keeps nothing before") {
  int recomputing = 0, several = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    remat::test::random_graph_options options;
    options.operations = 8 + static_cast<std::uint32_t>(seed % 17);
    options.backward = 90;
    options.accumulate = seed % 2 == 0 ? 40 : 0;
    options.once = seed % 3 == 0 ? 10 : 0;
    const problem p = remat::test::random_problem(seed, options).with_budget(problem::unlimited);
    const forward_line line = find_forward_line(p.graph());
    const stage_chain chain(p.graph(), line, random_cuts(line, seed));
    const staged_ways ways(p.graph(), chain, options_of(p, line, chain));
    std::mt19937_64 engine(seed);
    for (int trial = 0; trial < 8; ++trial) {
      std::vector<chain_step> steps;
      std::vector<std::uint32_t> chosen(chain.length() + 1);
      // From some stage on at first; then the rest from the start.
      const auto from = trial % 2 == 0 ? 1U : static_cast<std::uint32_t>(1 + engine() % chain.length());
      for (std::uint32_t s = 1; s < from; ++s)
        steps.push_back({s == 1 ? chain_action::forward_checkpoint : chain_action::forward_none, s, 0});
      for (const auto& [first, last] : {std::pair{from, chain.length()}, std::pair{1U, from - 1}}) {
        for (std::uint32_t s = first; s <= last; ++s) {
          several += ways.ways(s).size() > 1;
          chosen[s] = static_cast<std::uint32_t>(engine() % ways.ways(s).size());
          steps.push_back({chain_action::forward_all, s, chosen[s]});
        }
        for (std::uint32_t s = last; s >= first && s >= 1; --s) steps.push_back({chain_action::backward, s, chosen[s]});
      }
      const remat::check_report report = check(p, schedule_computes(p.graph(), ways.expand(steps)));
      CHECK(report.valid());
      if (!report.valid()) MESSAGE(report.message());
      recomputing += report.recomputes > 0;
    }
  }
  CHECK(recomputing > 200);
  CHECK(several > 1000);
}

TEST_CASE("a schedule of stages with options takes no more time, and hardly ever more memory, than the chain says") {
  std::uint64_t points = 0, with_options = 0, larger = 0;
  const std::uint64_t cases = remat::test::num_cases(500, 1500);
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    remat::test::random_graph_options options;
    options.operations = 8 + static_cast<std::uint32_t>(seed % 25);
    options.backward = seed % 4 == 3 ? 60 : 100;
    options.accumulate = seed % 2 == 0 ? 40 : 0;
    options.once = seed % 3 == 0 ? 10 : 0;
    const problem p = remat::test::random_problem(seed, options).with_budget(problem::unlimited);
    const forward_line line = find_forward_line(p.graph());
    const stage_chain chain(p.graph(), line, random_cuts(line, seed));
    const staged_ways ways(p.graph(), chain, options_of(p, line, chain));
    const auto slots = static_cast<std::uint32_t>(store_all_bytes(chain)) + 1;
    const auto sizes = size_chain(ways, {1, slots, slot_rounding::up});
    const excess_bound bound(sizes);
    slot_table table(sizes, slots, bound);
    remat::run_clock clock({});
    table.fill(clock, std::int64_t{1} << 32);
    for (std::uint32_t m = table.first(); m <= std::min(table.last(), slots); ++m) {
      if (m > table.first() && table.excess(m - 1) == table.excess(m)) continue;
      CAPTURE(m);
      const std::vector<chain_step> steps = table.steps(m);
      const remat::check_report flat = check(p, schedule_computes(p.graph(), ways.expand(steps)));
      CHECK_MESSAGE(flat.valid(), flat.message());
      CHECK(flat.time <= (table.cost(m) + chain.standing_time()) * (1 + 1e-9));
      larger += flat.peak_bytes > m + chain.standing_bytes();
      ++points;
      with_options += std::any_of(steps.begin(), steps.end(), [](const chain_step& k) { return k.option > 0; });
    }
  }
  CHECK(3 * points > 2 * cases);
  CHECK(15 * with_options > 2 * cases);
  CHECK(larger * 500 <= points);
}

}  // namespace
