// SPDX-License-Identifier: BSL-1.0
#include "remat/method/hiremate/impl/level_search.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/hierarchy/detail/find_ways.hpp"
#include "remat/io/json.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/hiremate/impl/level_problem.hpp"
#include "remat/method/rockmate/detail/sub_solvers.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/data.hpp"
#include "support/long_run.hpp"
#include "support/random_sub_graphs.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

constexpr double infinite = std::numeric_limits<double>::infinity();

/// The children of the whole step; groups with their options.
std::vector<level_child> children_of_step(const test::divided_step& d, std::uint64_t moves) {
  sub_graph_extractor extract(d.whole.graph(), d.hierarchy);
  std::vector<level_child> children = children_of(d.hierarchy, 0, extract);
  std::vector<sub_graph> parts;
  for (const level_child& c : children) parts.push_back(c.sub_graph);
  way_search search;
  search.moves = moves;
  search.max_budgets = 6;
  search.max_ways = 5;
  run_clock clock({});
  way_table table = find_ways(parts, search, default_sub_solvers{}, clock);
  for (std::size_t i = 0; i < children.size(); ++i) children[i].ways = std::move(table.ways[i]);
  return children;
}

struct result {
  std::size_t problems = 0, calls = 0, invalid = 0, illegal = 0;
  double best = infinite;
  schedule plan{};
  std::vector<std::vector<level_problem::choice>> all{};
  std::uint64_t work = 0;
};

/// Looks at every choice that comes.
result search(const test::divided_step& d, const std::vector<level_child>& children, std::int64_t budget,
              level_search_options options, const run_control& limits = {}) {
  const level_builder builder(d.whole.graph(), children);
  const problem p = d.whole.with_budget(budget);
  run_clock clock(limits);
  result out;
  double least = infinite;
  const auto expand = [&](std::span<const level_problem::choice> choices) {
    ++out.calls;
    schedule plan = schedule_computes(p, builder.expand(choices));
    const check_report report = check(p, plan);
    REQUIRE((report.valid() || report.what == violation::over_budget));
    // Every run of the level is among them.
    std::vector<int> runs(builder.level().runs.size(), 0);
    for (const level_problem::choice& c : choices) {
      REQUIRE(c.run < runs.size());
      REQUIRE(c.variant < builder.level().runs[c.run].variants.size());
      ++runs[c.run];
    }
    REQUIRE(std::find(runs.begin(), runs.end(), 0) == runs.end());
    const level_report level = simulate_level(builder.level(), choices);
    if (level.legal) REQUIRE(level.time >= report.time * (1 - 1e-12));
    out.illegal += !level.legal;  // a backward ran twice, which the contracted problem may allow
    out.all.emplace_back(choices.begin(), choices.end());
    if (report.valid()) least = std::min(least, report.time);
    out.invalid += !report.valid();
    return plan;
  };
  const level_search_result found = search_level(builder, children, p, clock, options, expand);
  REQUIRE(found.time == least);
  REQUIRE(found.plan.has_value() == (least < infinite));
  if (found.plan) REQUIRE(schedule_computes(p, builder.expand(found.choices)).steps == found.plan->steps);
  out.problems = found.problems;
  out.best = found.time;
  if (found.plan) out.plan = *found.plan;
  out.work = clock.work_done();
  return out;
}

test::divided_step bundled(const std::string& name) { return test::divide(test::bundled_problem(name), 20, 30); }

}  // namespace

TEST_CASE("random steps: what is taken is legal, and the search ends within its problems") {
  std::size_t found = 0, calls = 0, better = 0, illegal = 0, invalid = 0;
  for (std::uint64_t seed = 0; seed < test::num_cases(300, 1000); ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    if (d.mixed_sums()) continue;
    const std::vector<level_child> children = children_of_step(d, 100);
    const std::int64_t low = largest_working_set(d.whole).bytes, high = d.whole.graph().baseline_peak;
    REQUIRE(search(d, children, problem::unlimited, level_search_options{}).best == d.whole.graph().needed_time);
    for (int f = 0; f < 3; ++f) {
      const std::int64_t budget = low + (high - low) * f / 2;
      level_search_options options = level_search_options{};
      const result r = search(d, children, budget, options);
      INFO("seed ", seed, ", budget ", budget);
      REQUIRE(r.problems <= 2 * (options.prices + 2 + options.rounds * 2 * children.size()));
      REQUIRE(r.calls <= r.problems);
      REQUIRE(r.work >= r.problems);
      calls += r.calls;
      illegal += r.illegal;
      invalid += r.invalid;
      if (r.best == infinite) continue;
      ++found;
      // At the start alone, it is not better.
      options.rounds = 0;
      options.prices = 0;
      const result less = search(d, children, budget, options);
      REQUIRE(r.best <= less.best);
      better += r.best < less.best;
      // The same every time.
      REQUIRE(search(d, children, budget, level_search_options{}).all == r.all);
    }
  }
  MESSAGE(found, " found, ", better, " of them better for the search, in ", calls, " calls, ", invalid,
          " over the budget, ", illegal, " with a backward out of turn");
  CHECK(found > 100);
  CHECK(better > 10);
  CHECK(illegal < calls / 5);
}

TEST_CASE("a stop: no further problem") {
  const test::divided_step d = bundled("rk/gpt2-like-2l");
  const std::vector<level_child> children = children_of_step(d, 20);
  const std::int64_t budget = d.whole.graph().baseline_peak * 6 / 10;
  const result free = search(d, children, budget, level_search_options{});
  REQUIRE(free.best < infinite);
  REQUIRE(free.problems > 4);

  std::stop_source source;
  run_control limits;
  limits.stop = source.get_token();
  source.request_stop();
  result r = search(d, children, budget, level_search_options{}, limits);
  CHECK(r.calls == 0);
  CHECK(r.work == 0);

  limits = {};
  limits.time_limit = std::chrono::nanoseconds(0);
  r = search(d, children, budget, level_search_options{}, limits);
  CHECK(r.calls == 0);
  CHECK(r.work == 0);

  // From within: the one under way is the last.
  std::stop_source later;
  limits = {};
  limits.stop = later.get_token();
  const level_builder builder(d.whole.graph(), children);
  run_clock clock(limits);
  std::size_t calls = 0;
  const problem p = d.whole.with_budget(budget);
  (void)search_level(builder, children, p, clock, {}, [&](std::span<const level_problem::choice> choices) {
    ++calls;
    later.request_stop();
    return schedule_computes(p, builder.expand(choices));
  });
  CHECK(calls == 1);
  CHECK(clock.work_done() <= free.work);

  // A limit on work: the problem under way is the last.
  for (const std::uint64_t most : {std::uint64_t{1}, free.work / 2}) {
    limits = {};
    limits.work_limit = most;
    r = search(d, children, budget, level_search_options{}, limits);
    CHECK(r.problems >= 1);
    CHECK(r.work <= most + free.work / 4);
  }
}

TEST_CASE("what the expansion throws leaves the search; only legal schedules count") {
  const test::divided_step d = bundled("rk/fno1d");
  const std::vector<level_child> children = children_of_step(d, 20);
  const problem p = d.whole.with_budget(d.whole.graph().baseline_peak * 8 / 10);
  const level_builder builder(d.whole.graph(), children);
  const level_search_options options = level_search_options{};
  const run_control unlimited;
  run_clock clock(unlimited);
  CHECK_THROWS_WITH_AS((void)search_level(builder, children, p, clock, options,
                                          [](auto) -> schedule { throw std::runtime_error("enough"); }),
                       "enough", std::runtime_error);
  // Where nothing is good enough, single options are not exchanged.
  std::size_t calls = 0;
  run_clock fresh(unlimited);
  const level_search_result none = search_level(builder, children, p, fresh, options, [&](auto) {
    ++calls;
    return schedule{};
  });
  CHECK_FALSE(none.plan.has_value());
  CHECK(calls > 0);
  CHECK(calls <= 2 * (options.prices + 2));
}

TEST_CASE("bundled steps: within a budget that eviction alone meets") {
  for (const char* name : {"rk/unet", "rk/mixer", "unet5-b16-256"}) {
    const test::divided_step d = bundled(name);
    const std::vector<level_child> children = children_of_step(d, 20);
    for (const int percent : {60, 80}) {
      const std::int64_t budget = d.whole.graph().baseline_peak / 100 * percent;
      const result r = search(d, children, budget, level_search_options{});
      INFO(std::string(name), " at ", percent, " %: ", r.best, " of ", d.whole.graph().needed_time);
      if (!evict(d.whole.with_budget(budget)).plan) continue;
      REQUIRE(r.best < infinite);
      CHECK(check(d.whole.with_budget(budget), r.plan).valid());
      CHECK(r.best < d.whole.graph().needed_time * 2);
    }
  }
}
