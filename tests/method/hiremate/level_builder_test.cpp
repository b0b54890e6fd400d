// SPDX-License-Identifier: BSL-1.0
#include "remat/method/hiremate/impl/level_builder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/io/json.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/hiremate/impl/level_problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/data.hpp"
#include "support/long_run.hpp"
#include "support/random_sub_graphs.hpp"
#include "support/valid_level.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

/// Options of a part: everything kept, and what eviction makes of smaller and smaller budgets, random ones among them.
std::vector<sub_graph_way> some_options(const sub_graph& part, std::uint64_t seed) {
  const sub_graph_runs runs(part);
  std::vector<sub_graph_way> out{runs.keep_everything()};
  std::int64_t everything = out[0].saved_bytes;
  for (const std::uint32_t t : out[0].backward_reads)
    if (runs.is_output(t)) everything += part.tensor[t].bytes;
  const std::int64_t gradients = runs.gradient_input_bytes();
  const problem free = runs.problem_within(gradients, 0).with_budget(problem::unlimited);
  const std::int64_t low = largest_working_set(free).bytes,
                     high = std::max(free.graph().baseline_peak, everything + gradients);
  for (int i = 0; i < 6; ++i) {
    const std::int64_t peak = i % 2 == 0 ? high : low + (high - low) / 2;
    const solution s =
        evict(runs.problem_within(peak, std::min(peak, everything * (4 - i) / 6)), {.run = {.seed = seed}});
    if (!s.plan) continue;
    if (auto o = runs.way_of(*s.plan)) out.push_back(std::move(*o));
  }
  keep_pareto_optimal(out, runs);
  return out;
}

std::vector<level_child> children_with_ways(const test::divided_step& d, std::size_t group, std::uint64_t seed) {
  sub_graph_extractor extract(d.whole.graph(), d.hierarchy);
  std::vector<level_child> children = children_of(d.hierarchy, group, extract);
  for (level_child& c : children) c.ways = some_options(c.sub_graph, seed);
  return children;
}

std::vector<std::uint32_t> random_options(const std::vector<level_child>& children, std::mt19937_64& engine, int kind) {
  std::vector<std::uint32_t> option;
  for (const level_child& c : children) {
    const auto n = static_cast<std::uint32_t>(c.ways.size());
    option.push_back(kind == 0 ? 0 : kind == 1 ? n - 1 : static_cast<std::uint32_t>(engine() % n));
  }
  return option;
}

/// A backward runs twice, or not in turn, which only the contracted problem allows.
bool out_of_turn(const level_problem& level, const std::vector<level_problem::choice>& choices) {
  std::vector<int> count(level.runs.size(), 0);
  std::uint32_t next = 0;
  for (const level_problem::choice& c : choices) {
    if (++count[c.run] > 1) {
      if (!level.runs[c.run].again) return true;
    } else if (c.run != next++) {
      return true;
    }
  }
  return false;
}

problem bundled(const std::string& name) { return test::bundled_problem(name); }

/// What holds of every schedule of the contracted problem; returns the flat one's report.
struct counts {
  std::size_t schedules = 0, again = 0, below = 0, out_of_turn = 0, careless = 0;
};
void check_expansion(const problem& whole, const level_builder& builder, const std::vector<std::uint32_t>& option,
                     bool careful, const solution& s, counts& seen) {
  REQUIRE(s.plan);
  const std::vector<level_problem::choice> choices = builder.choices_of(*s.plan, option);
  const std::vector<std::uint32_t> operations = builder.expand(choices);
  const schedule flat = schedule_computes(whole, operations);
  const check_report report = check(whole, flat);
  INFO(report.message());
  REQUIRE(report.valid());
  REQUIRE(report.time <= s.time * (1 + 1e-12));
  if (careful) REQUIRE(report.peak_bytes <= s.peak_bytes);
  seen.careless += !careful && report.peak_bytes > s.peak_bytes;
  ++seen.schedules;
  seen.below += report.peak_bytes < s.peak_bytes;
  std::vector<int> runs(builder.level().runs.size(), 0);
  bool again = false;
  for (const level_problem::choice& c : choices) again = ++runs[c.run] > 1 || again;
  for (const int n : runs) REQUIRE(n > 0);
  seen.again += again;
  if (out_of_turn(builder.level(), choices)) {
    ++seen.out_of_turn;
    return;
  }
  const level_report level = simulate_level(builder.level(), choices);
  INFO(level.message);
  REQUIRE(level.legal);
  REQUIRE(level.time >= report.time * (1 - 1e-12));
  REQUIRE(level.peak_bytes >= report.peak_bytes);
}

}  // namespace

TEST_CASE("children: every operation of the group is in one of them, with the option that keeps everything") {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    if (d.mixed_sums()) continue;
    sub_graph_extractor extract(d.whole.graph(), d.hierarchy);
    for (std::size_t g = 0; g < d.hierarchy.groups.size(); ++g) {
      const std::vector<level_child> children = children_of(d.hierarchy, g, extract);
      REQUIRE(children.size() == d.hierarchy.children[g].size());
      std::vector<std::uint32_t> all, expected;
      for (const level_child& c : children) {
        REQUIRE(c.ways.size() == 1);
        REQUIRE(c.ways[0].forward.size() + c.ways[0].backward.size() == c.sub_graph.operations.size());
        all.insert(all.end(), c.sub_graph.operations.begin(), c.sub_graph.operations.end());
      }
      for (const auto part : {d.hierarchy.forward(g), d.hierarchy.backward(g)})
        expected.insert(expected.end(), part.begin(), part.end());
      std::sort(all.begin(), all.end());
      std::sort(expected.begin(), expected.end());
      INFO("seed ", seed, ", group ", g);
      REQUIRE(all == expected);
    }
  }
}

TEST_CASE("random steps: schedules of the whole step's level are schedules of the step, in the memory that they say") {
  counts careful, careless;
  std::size_t steps = 0, sums = 0;
  const std::uint64_t count = test::num_cases(500, 6000);
  for (std::uint64_t i = 0; i < count; ++i) {
    // Among the first are some where the count was too low once.
    const std::uint64_t seed = i;
    const test::divided_step d = test::random_divided_step(seed);
    if (d.mixed_sums()) continue;
    const std::vector<level_child> children = children_with_ways(d, 0, seed);
    const level_builder builder(d.whole.graph(), children);
    INFO("seed ", seed);
    REQUIRE_NOTHROW(test::require_valid(builder.level()));
    REQUIRE(builder.num_children() == children.size());
    for (const level_child& c : children) {
      const sub_graph_runs runs(c.sub_graph);
      for (std::uint32_t t = 0; t < c.sub_graph.tensors.size(); ++t) sums += runs.is_forward_sum(t);
    }
    ++steps;
    std::mt19937_64 engine(seed);
    for (int kind = 0; kind < 4; ++kind) {
      const std::vector<std::uint32_t> option = random_options(children, engine, kind);
      const problem free = builder.with_ways(option, problem::unlimited);
      const std::int64_t low = largest_working_set(free).bytes, high = free.graph().baseline_peak;
      for (int f = 0; f < 3; ++f) {
        INFO("options of kind ", kind, ", budget ", f);
        const std::int64_t budget = low + (high - low) * f / 2;
        const solution s = evict(builder.with_ways(option, budget), {.run = {.seed = seed}});
        if (s.plan) check_expansion(d.whole, builder, option, true, s, careful);
        const solution t = evict(builder.with_ways(option, budget, false), {.run = {.seed = seed}});
        if (t.plan) check_expansion(d.whole, builder, option, false, t, careless);
      }
    }
  }
  MESSAGE(steps, " steps with ", sums, " sums; ", careful.schedules, " schedules, ", careful.again,
          " with runs again, ", careful.below, " need less, ", careful.out_of_turn, " with a backward out of turn; of ",
          careless.schedules, " without care ", careless.careless, " need more");
  CHECK(careful.again > 100);
  CHECK(careful.below > 10);
  CHECK(careless.careless > 0);
  CHECK(sums > 0);
}

TEST_CASE("steps where the count was too low once") {
  counts seen;
  for (const std::uint64_t seed : {121U, 1184U, 1711U, 2871U}) {
    test::random_graph_options kind = test::kind_of_graph(seed);
    kind.operations = 8 + static_cast<std::uint32_t>(seed % 20);
    const test::divided_step d = test::divide(test::random_problem(seed, kind), 4, 4);
    REQUIRE_FALSE(d.mixed_sums());
    const std::vector<level_child> children = children_with_ways(d, 0, seed);
    const level_builder builder(d.whole.graph(), children);
    std::mt19937_64 engine(seed);
    for (int trial = 0; trial < 20; ++trial) {
      const std::vector<std::uint32_t> option = random_options(children, engine, trial);
      const problem free = builder.with_ways(option, problem::unlimited);
      const std::int64_t low = largest_working_set(free).bytes, high = free.graph().baseline_peak;
      for (int f = 0; f < 6; ++f) {
        const solution s = evict(builder.with_ways(option, low + (high - low) * f / 5));
        INFO("seed ", seed, " trial ", trial);
        if (s.plan) check_expansion(d.whole, builder, option, true, s, seen);
      }
    }
  }
  CHECK(seen.schedules > 100);
}

TEST_CASE("random steps: a schedule of a group's level is a schedule of the group as a problem of its own") {
  std::size_t groups = 0, legal = 0, within = 0;
  for (std::uint64_t seed = 0; seed < test::num_cases(400, 3000); ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    if (d.mixed_sums()) continue;
    sub_graph_extractor extract(d.whole.graph(), d.hierarchy);
    for (std::size_t g = 1; g < d.hierarchy.groups.size(); ++g) {
      const std::vector<level_child> children = children_with_ways(d, g, seed);
      if (children.size() < 2) continue;
      const sub_graph part = extract(g);
      const sub_graph_runs whole(part);
      const problem free = whole.problem_within(whole.gradient_input_bytes(), 0).with_budget(problem::unlimited);
      const std::int64_t peak = free.graph().baseline_peak, save = peak / 2;
      const level_builder builder(d.whole.graph(), children, &whole, peak, save);
      INFO("seed ", seed, " group ", g);
      REQUIRE_NOTHROW(test::require_valid(builder.level()));
      ++groups;
      std::mt19937_64 engine(seed);
      const std::vector<std::uint32_t> option = random_options(children, engine, static_cast<int>(seed % 3));
      const solution s = evict(builder.with_ways(option, peak));
      if (!s.plan) continue;
      const auto choices = builder.choices_of(*s.plan, option);
      // Take and turn are the two runs in the middle, once each and in turn.
      const auto middle = static_cast<std::uint32_t>(children.size());
      std::vector<std::uint32_t> order;
      std::vector<std::uint32_t> place(d.whole.graph().num_operations, 0);
      for (std::uint32_t i = 0; i < part.operations.size(); ++i)
        place[part.operations[i]] = i < whole.num_forward() ? i : i + 2;
      int marks = 0;
      std::size_t from = 0;
      const auto add = [&](std::size_t to) {
        for (const std::uint32_t o : builder.expand(std::span(choices).subspan(from, to - from)))
          order.push_back(place[o]);
        from = to;
      };
      for (std::size_t i = 0; i < choices.size(); ++i) {
        if (choices[i].run != middle && choices[i].run != middle + 1) continue;
        REQUIRE(choices[i].run == middle + static_cast<std::uint32_t>(marks++));
        add(i);
        order.push_back(whole.num_forward() + choices[i].run - middle);
      }
      add(choices.size());
      REQUIRE(marks == 2);
      if (!out_of_turn(builder.level(), choices)) {
        const level_report level = simulate_level(builder.level(), choices);
        INFO(level.message);
        REQUIRE(level.legal);
      }
      // Operations without outputs run in each part that expands them, but once is right.
      std::vector<std::uint8_t> ran(part.operations.size() + 2, 0);
      std::vector<std::uint32_t> once;
      for (const std::uint32_t o : order) {
        const bool effect = o != whole.num_forward() && o != whole.num_forward() + 1 &&
                            part.writes[o < whole.num_forward() ? o : o - 2].empty();
        if (effect && ran[o]) continue;
        ran[o] = 1;
        once.push_back(o);
      }
      const problem flat = whole.problem_within(peak, save);
      const check_report report = check(flat, schedule_computes(flat, once));
      INFO(report.message());
      REQUIRE((report.valid() || report.what == violation::over_budget));
      ++legal;
      within += report.valid();
    }
  }
  MESSAGE(groups, " groups, ", legal, " schedules, ", within, " within the budget");
  CHECK(legal > 50);
  CHECK(within > legal / 2);
}

TEST_CASE("all options in the listed order: the listed order of the step") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    if (d.mixed_sums()) continue;
    sub_graph_extractor extract(d.whole.graph(), d.hierarchy);
    const std::vector<level_child> children = children_of(d.hierarchy, 0, extract);
    const level_builder builder(d.whole.graph(), children);
    const std::vector<std::uint32_t> option(children.size(), 0);
    // An empty schedule: `choices_of` adds each run once, in turn.
    const auto choices = builder.choices_of(schedule{}, option);
    REQUIRE(choices.size() == builder.level().runs.size());
    std::vector<std::uint32_t> operations = builder.expand(choices);
    INFO("seed ", seed);
    const check_report report = check(d.whole, schedule_computes(d.whole, operations));
    REQUIRE(report.valid());
    REQUIRE(report.time == d.whole.graph().needed_time);
    const level_report level = simulate_level(builder.level(), choices);
    REQUIRE(level.legal);
    REQUIRE(level.time == d.whole.graph().needed_time);
    REQUIRE(level.peak_bytes >= report.peak_bytes);
    std::sort(operations.begin(), operations.end());
    REQUIRE(std::adjacent_find(operations.begin(), operations.end()) == operations.end());
  }
}

TEST_CASE("options that keep the same after the same forward share what they keep") {
  std::size_t shared = 0, apart = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const test::divided_step d = test::random_divided_step(seed);
    if (d.mixed_sums()) continue;
    std::vector<level_child> children = children_with_ways(d, 0, seed);
    std::size_t before = 0, after = 0;
    {
      const level_builder builder(d.whole.graph(), children);
      before = builder.level().bytes.size();
    }
    for (level_child& c : children) {
      const std::size_t n = c.ways.size();
      for (std::size_t i = 0; i < n; ++i) {
        sub_graph_way same = c.ways[i];
        same.backward_time += 1;
        c.ways.push_back(same);
        shared += !same.kept.empty();
        apart += same.kept.empty();
      }
    }
    const level_builder builder(d.whole.graph(), children);
    after = builder.level().bytes.size();
    INFO("seed ", seed);
    REQUIRE(before == after);
    std::size_t variants = 0, options = 0;
    for (std::uint32_t r = 0; r < builder.level().runs.size(); ++r)
      if (r >= children.size()) variants += builder.level().runs[r].variants.size();
    for (const level_child& c : children)
      if (sub_graph_runs(c.sub_graph).num_forward() < c.sub_graph.operations.size()) options += c.ways.size();
    REQUIRE(variants == options);
  }
  CHECK(shared > 20);
  CHECK(apart > 20);
}

TEST_CASE("bundled steps: the same") {
  counts seen;
  for (const char* name : {"rk/gpt2-like-2l", "rk/fno1d", "rk/unet", "toy-skip-3", "gpt2-small-b8-s1024"}) {
    const test::divided_step d = test::divide(bundled(name), 20, 30);
    REQUIRE_FALSE(d.mixed_sums());
    sub_graph_extractor extract(d.whole.graph(), d.hierarchy);
    std::vector<level_child> children = children_of(d.hierarchy, 0, extract);
    for (level_child& c : children)
      if (c.sub_graph.operations.size() > 4) c.ways = some_options(c.sub_graph, 1);
    const level_builder builder(d.whole.graph(), children);
    REQUIRE_NOTHROW(test::require_valid(builder.level()));
    std::mt19937_64 engine(1);
    for (int kind = 0; kind < 3; ++kind) {
      const std::vector<std::uint32_t> option = random_options(children, engine, kind);
      const problem free = builder.with_ways(option, problem::unlimited);
      const std::int64_t low = largest_working_set(free).bytes, high = free.graph().baseline_peak;
      for (const int percent : {30, 60, 90}) {
        const solution s = evict(builder.with_ways(option, low + (high - low) / 100 * percent));
        INFO(std::string(name), " options of kind ", kind, " at ", percent, " %");
        if (s.plan) check_expansion(d.whole, builder, option, true, s, seen);
      }
    }
  }
  MESSAGE(seen.schedules, " schedules, ", seen.again, " with runs again");
  CHECK(seen.again > 5);
}
