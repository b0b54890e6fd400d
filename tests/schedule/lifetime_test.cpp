// SPDX-License-Identifier: BSL-1.0
#include "remat/schedule/lifetime.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/copy_schedules.hpp"
#include "support/random_graph.hpp"
#include "support/schedules.hpp"

namespace {
using namespace remat;  // NOLINT: a test
}

TEST_CASE("lifetimes add up to the memory that the checker sees at every step") {
  std::size_t never_freed = 0, made_again = 0, workspaces = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 4 + static_cast<std::uint32_t>(seed % 16)});
    const flat_graph& s = p.graph();
    const schedule plan = test::random_schedule(p, seed).plan;
    std::vector<std::int64_t> expected(plan.steps.size(), 0);
    const check_report report = check(p, plan, [&](std::size_t i, std::int64_t bytes) { expected[i] = bytes; });
    if (!report.valid()) continue;
    const lifetimes lives = lifetimes_of(p, plan);
    INFO("seed ", seed);
    REQUIRE(lives.num_steps() == plan.steps.size());
    REQUIRE(lives.inputs.size() == plan.steps.size());
    REQUIRE(lives.outputs.size() == plan.steps.size());

    std::vector<std::int64_t> bytes(plan.steps.size(), 0);
    std::vector<std::uint32_t> times(s.num_tensors, 0);
    std::uint32_t before = 0;
    for (const allocation& a : lives.allocations) {
      REQUIRE(a.first < a.last);
      REQUIRE(a.last <= plan.steps.size());
      CHECK(before <= a.first);
      before = a.first;
      CHECK(plan.steps[a.first] == step::compute(static_cast<op_id>(a.operation)));
      for (std::uint32_t i = a.first; i < a.last; ++i) bytes[i] += a.bytes;
      if (a.is_workspace()) {
        CHECK(a.last == a.first + 1);
        CHECK(a.bytes == s.workspace[a.operation]);
        ++workspaces;
        continue;
      }
      CHECK(a.bytes == s.bytes[a.tensor]);
      if (a.last < plan.steps.size())
        CHECK(plan.steps[a.last] == step::free(static_cast<tensor_id>(a.tensor)));
      else
        ++never_freed;
      made_again += ++times[a.tensor] == 2;
    }
    CHECK(bytes == expected);

    // The rows name, for every read and write, the one allocation of that tensor which is there at the time.
    for (std::uint32_t i = 0; i < plan.steps.size(); ++i) {
      if (plan.steps[i].is_free()) {
        CHECK(lives.inputs[i].empty());
        CHECK(lives.outputs[i].empty());
        CHECK(lives.workspace[i] == lifetimes::no_allocation);
        continue;
      }
      const std::size_t o = index(plan.steps[i].operation());
      const auto matches = [&](std::span<const std::uint32_t> tensors, std::span<const std::uint32_t> row) {
        return std::equal(tensors.begin(), tensors.end(), row.begin(), row.end(),
                          [&](std::uint32_t t, std::uint32_t a) {
                            const allocation& x = lives.allocations[a];
                            return x.tensor == t && x.first <= i && i < x.last;
                          });
      };
      CHECK(matches(s.inputs[o], lives.inputs[i]));
      CHECK(matches(s.outputs[o], lives.outputs[i]));
      if (s.workspace[o] == 0) {
        CHECK(lives.workspace[i] == lifetimes::no_allocation);
      } else {
        REQUIRE(lives.workspace[i] < lives.allocations.size());
        CHECK(lives.allocations[lives.workspace[i]].first == i);
        CHECK(lives.allocations[lives.workspace[i]].is_workspace());
      }
    }
  }
  CHECK(never_freed > 200);
  CHECK(made_again > 200);
  CHECK(workspaces > 200);
}

TEST_CASE("a gradient of two producers is one allocation, from the first to its free") {
  training_graph g;
  const tensor_id x = g.add_tensor({"x", 10});
  const tensor_id sum = g.add_tensor({"sum", 20});
  const tensor_id empty = g.add_tensor({"empty", 0});
  g.add_operation({.name = "a", .outputs = {x, sum}, .seconds = 1, .workspace = 5});
  g.add_operation({.name = "b", .inputs = {x}, .outputs = {sum}, .seconds = 1});
  g.add_operation({.name = "c", .inputs = {sum}, .outputs = {empty}, .seconds = 1});
  g.add_final_output(empty);
  const problem p(g, measured_cost{});
  const schedule plan{
      {step::compute(op_id{0}), step::compute(op_id{1}), step::free(x), step::compute(op_id{2}), step::free(sum)}};
  const lifetimes lives = lifetimes_of(p, plan);
  const std::vector<allocation> expected{
      {0, 2, 0, 0, 10}, {0, 4, 1, 0, 20}, {0, 1, allocation::no_tensor, 0, 5}, {3, 5, 2, 2, 0}};
  CHECK(lives.allocations == expected);
  CHECK(lives.outputs[1][0] == 1);
  CHECK(lives.inputs[3][0] == 1);
  CHECK(lives.workspace[0] == 2);
  CHECK(lives.workspace[1] == lifetimes::no_allocation);
}

TEST_CASE("what the checker refuses has no lifetimes") {
  std::size_t refused = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const problem p = test::random_problem(seed);
    const schedule plan = test::random_schedule(p, seed).plan;
    for (std::size_t way = 0; way < std::size(test::ways_to_break); ++way) {
      const schedule spoiled = test::broken(p, plan, way, seed);
      if (check(p, spoiled).valid()) {
        CHECK_NOTHROW((void)lifetimes_of(p, spoiled));
      } else {
        CHECK_THROWS_AS((void)lifetimes_of(p, spoiled), bad_argument);
        ++refused;
      }
    }
    const check_report report = check(p, plan);
    if (report.valid() && report.peak_bytes > 0)
      CHECK_THROWS_AS((void)lifetimes_of(p.with_budget(report.peak_bytes - 1), plan), bad_argument);
  }
  CHECK(refused > 3000);
}

namespace {

const std::string name_of_a = "make a";

/// x → a → b, and c from a and b; the peak is at b, with its workspace.
training_graph diamond() {
  training_graph g("diamond");
  const tensor_id x = g.add_tensor({.name = "x", .bytes = 999, .kind = tensor_kind::input});
  const tensor_id a = g.add_tensor({.name = name_of_a, .bytes = 10});
  const tensor_id b = g.add_tensor({.name = "b", .bytes = 20});
  const tensor_id c = g.add_tensor({.name = "c", .bytes = 5});
  g.add_operation({.name = name_of_a, .inputs = {x}, .outputs = {a}});
  g.add_operation({.name = "make b", .inputs = {a}, .outputs = {b}, .workspace = 100});
  g.add_operation({.name = "make c", .inputs = {a, b}, .outputs = {c}});
  g.add_final_output(c);
  return g;
}

schedule listed(const problem& p) { return schedule_computes(p, std::vector<std::uint32_t>{0, 1, 2}); }

}  // namespace

TEST_CASE("a memory profile names the operations that run again and the tensors in memory at the peak") {
  const training_graph g = diamond();
  const problem p(g, unit_cost{});
  schedule plan;
  plan.compute(op_id{0});
  plan.compute(op_id{1});
  plan.free(tensor_id{1});
  plan.compute(op_id{0});
  plan.compute(op_id{2});
  plan.free(tensor_id{1});
  plan.free(tensor_id{2});
  REQUIRE(check(p, plan).valid());
  const memory_profile profile = memory_profile_of(p, g, plan);
  REQUIRE(profile.recomputes.size() == 1);
  CHECK(profile.recomputes[0].name == name_of_a);
  CHECK(profile.recomputes[0].operations == 1);
  CHECK(profile.recomputes[0].reruns == 1);
  CHECK(profile.recomputes[0].time == 1);
  CHECK(profile.rerun_time == 1);
  CHECK(profile.peak_bytes == 130);
  CHECK(profile.peak_operation == "make b");
  CHECK(profile.peak_time == 1);
  REQUIRE(profile.at_peak.size() == 3);
  CHECK(profile.at_peak[0].name == "workspace of make b");
  CHECK(profile.at_peak[0].bytes == 100);
  CHECK(profile.at_peak[1].name == "b");
  CHECK(profile.at_peak[2].name == name_of_a);
  REQUIRE(profile.memory.size() == 5);
  CHECK(profile.memory[1].bytes == 130);
  CHECK(profile.memory[3].bytes == 35);
  CHECK(profile.memory[4].bytes == 5);
  CHECK(profile.memory[4].time == 4);
  CHECK(memory_profile_of(p, g, listed(p)).recomputes.empty());
}

TEST_CASE("the tensors and the workspace at the peak add up to the peak") {
  const training_graph g = diamond();
  const problem p(g, unit_cost{});
  const memory_profile profile = memory_profile_of(p, g, listed(p));
  std::int64_t sum = 0;
  for (const auto& r : profile.at_peak) sum += r.bytes;
  CHECK(sum == profile.peak_bytes);
}

TEST_CASE("a memory profile says which operation runs at each point, and what is kept from forward to backward") {
  training_graph g("turn");
  const tensor_id x = g.add_tensor({.name = "x", .bytes = 999, .kind = tensor_kind::input});
  const tensor_id a = g.add_tensor({.name = "a", .bytes = 10});
  const tensor_id b = g.add_tensor({.name = "b", .bytes = 20});
  const tensor_id grad = g.add_tensor({.name = "grad", .bytes = 5});
  g.add_operation({.name = "make a", .phase = op_phase::forward, .inputs = {x}, .outputs = {a}});
  g.add_operation({.name = "make b", .phase = op_phase::forward, .inputs = {a}, .outputs = {b}});
  g.add_operation({.name = "back", .phase = op_phase::backward, .inputs = {b}, .outputs = {grad}});
  g.add_operation({.name = "end", .phase = op_phase::backward, .inputs = {a, grad}});
  const problem p(g, unit_cost{});
  const auto profile_of = [&](bool recompute) {
    schedule plan;
    plan.compute(op_id{0});
    plan.compute(op_id{1});
    if (recompute) plan.free(a);
    plan.compute(op_id{2});
    plan.free(b);
    if (recompute) plan.compute(op_id{0});
    plan.compute(op_id{3});
    REQUIRE(check(p, plan).valid());
    return memory_profile_of(p, g, plan);
  };
  const memory_profile keeps = profile_of(false), again = profile_of(true);
  CHECK(keeps.turn_time == 2.0);
  REQUIRE(keeps.kept.size() == 2);
  CHECK(keeps.kept[0].name == "b");
  CHECK(keeps.kept[0].operation == 1);
  CHECK(keeps.kept[1].name == "a");
  CHECK(keeps.reruns.empty());
  REQUIRE(again.kept.size() == 1);
  CHECK(again.kept[0].name == "b");
  REQUIRE(again.reruns.size() == 1);
  CHECK(again.reruns[0].operation == 0);
  CHECK(again.reruns[0].runs == 2);
  REQUIRE(again.memory.size() == 6);
  CHECK(again.memory[0].operation == 0);
  CHECK(again.memory[0].run == 1);
  CHECK(again.memory[3].operation == 0);
  CHECK(again.memory[3].run == 2);
  CHECK(again.memory[5].operation == memory_point::no_operation);
  CHECK(again.memory[5].run == 0);

  const problem none(diamond(), unit_cost{});  // its phases are unknown: the turn is estimated
  CHECK(memory_profile_of(none, diamond(), listed(none)).turn_time.has_value());
}

TEST_CASE("names may come from elsewhere than a graph") {
  const problem p(diamond(), unit_cost{});
  const name_lookup numbers{[](op_id o) { return "o" + std::to_string(index(o)); },
                            [](tensor_id t) { return "t" + std::to_string(index(t)); }};
  const memory_profile profile = memory_profile_of(p, numbers, listed(p));
  CHECK(profile.peak_operation == "o1");
  CHECK(profile.at_peak.front().name == "workspace of o1");
  CHECK(profile.at_peak.back().name == "t1");
}

TEST_CASE("copies: lifetimes on the device and on the host") {
  training_graph g;
  const tensor_id a = g.add_tensor({"a", 10}), b = g.add_tensor({"b", 20}), c = g.add_tensor({"c", 5});
  g.add_operation({.name = "make_a", .outputs = {a}});
  g.add_operation({.name = "make_b", .inputs = {a}, .outputs = {b}});
  g.add_operation({.name = "make_c", .inputs = {a, b}, .outputs = {c}, .workspace = 3});
  g.add_final_output(c);
  const problem p = problem(g, unit_cost{}).with_link({.out = 10, .in = 5, .latency = 0.5});
  const schedule plan{{step::compute(op_id{0}), step::offload(a), step::compute(op_id{1}), step::free(a),
                       step::offload(b), step::prefetch(a), step::drop(a), step::compute(op_id{2})}};
  const lifetimes lives = lifetimes_of(p, plan);
  constexpr std::uint32_t by_copy = allocation::no_operation;
  CHECK(lives.allocations == std::vector<allocation>{{0, 3, 0, 0, 10},
                                                     {2, 8, 1, 1, 20},
                                                     {5, 8, 0, by_copy, 10},
                                                     {7, 8, 2, 2, 5},
                                                     {7, 8, allocation::no_tensor, 2, 3}});
  CHECK(lives.host == std::vector<allocation>{{1, 6, 0, by_copy, 10}, {4, 8, 1, by_copy, 20}});
  const auto row = [](std::span<const std::uint32_t> r) { return std::vector<std::uint32_t>(r.begin(), r.end()); };
  using list = std::vector<std::uint32_t>;
  CHECK(row(lives.inputs[1]) == list{0});  // the offload reads
  CHECK(row(lives.inputs[4]) == list{1});
  CHECK(row(lives.outputs[5]) == list{2});  // the prefetch writes
  CHECK(row(lives.inputs[6]).empty());
  CHECK(row(lives.inputs[7]) == list{2, 1});
}

TEST_CASE("copies: at no step are more bytes in use than the checker says, on the device and on the host") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    const problem plain = test::random_problem(seed, {.operations = 12});
    const problem p = plain.with_link(test::random_link(plain, seed));
    const schedule plan = test::random_copy_schedule(p, seed).plan;
    const lifetimes lives = lifetimes_of(p, plan);
    const auto used = [&](const std::vector<allocation>& all) {
      std::vector<std::int64_t> bytes(plan.steps.size(), 0);
      for (const allocation& a : all)
        for (std::uint32_t i = a.first; i < a.last; ++i) bytes[i] += a.bytes;
      return bytes;
    };
    std::vector<std::int64_t> memory;
    const check_report r = check(p, plan, [&](std::size_t, std::int64_t bytes) { memory.push_back(bytes); });
    CHECK(used(lives.allocations) == memory);
    const std::vector<std::int64_t> host = used(lives.host);
    CHECK((host.empty() ? 0 : *std::max_element(host.begin(), host.end())) == r.host_peak_bytes);
  }
}

TEST_CASE("copies: a memory profile has the times of the engines, and both memories") {
  training_graph g("copies");
  const tensor_id a = g.add_tensor({.name = "a", .bytes = 10}), b = g.add_tensor({.name = "b", .bytes = 20}),
                  c = g.add_tensor({.name = "c", .bytes = 5});
  g.add_operation({.name = "make_a", .phase = op_phase::forward, .outputs = {a}});
  g.add_operation({.name = "make_b", .phase = op_phase::forward, .outputs = {b}});
  g.add_operation({.name = "make_c", .phase = op_phase::backward, .outputs = {c}});
  for (const tensor_id t : {a, b, c}) g.add_final_output(t);
  const problem p = problem(g, unit_cost{}).with_link({.out = 10, .in = 5, .latency = 0.5});
  // a: 1.5 out, 2.5 in.
  const schedule plan{{step::compute(op_id{0}), step::offload(a), step::compute(op_id{1}), step::free(a),
                       step::compute(op_id{2}), step::prefetch(a), step::drop(a)}};
  const memory_profile m = memory_profile_of(p, g, plan);
  CHECK(m.peak_bytes == 35);
  CHECK(m.peak_operation.empty());
  CHECK(m.peak_prefetch == "a");
  CHECK(m.peak_time == 3.5);
  CHECK(m.host_peak_bytes == 10);
  CHECK(m.copies == 2);
  CHECK(m.turn_time == 2.5);
  REQUIRE(m.kept.size() == 1);
  CHECK(m.kept[0].name == "b");
  REQUIRE(m.at_peak.size() == 3);
  CHECK(m.at_peak[1].name == "a");
  REQUIRE(m.memory.size() == 5);
  const auto is = [](const memory_point& x, double time, std::int64_t bytes, std::uint32_t o) {
    return x.time == time && x.bytes == bytes && x.operation == o;
  };
  constexpr std::uint32_t none = memory_point::no_operation;
  CHECK(is(m.memory[0], 0, 10, 0));
  CHECK(is(m.memory[1], 1, 30, 1));
  CHECK(is(m.memory[2], 2.5, 25, 2));  // the free before it waited for the copy
  CHECK(is(m.memory[3], 3.5, 35, none));
  CHECK(is(m.memory[4], 6, 35, none));
  REQUIRE(m.host.size() == 2);
  CHECK(is(m.host[0], 1, 10, none));
  CHECK(is(m.host[1], 3.5, 0, none));
  CHECK(m.times.makespan == 6);
  CHECK(m.times.busy_of(engine::copy_in) == 2.5);
}
