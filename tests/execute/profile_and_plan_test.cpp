// SPDX-License-Identifier: BSL-1.0
#include "remat/execute/profile.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/offload.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/solution.hpp"
#include "shared/stand_in.hpp"
#include "support/random_graph.hpp"
#include "support/scripted_executor.hpp"

using namespace remat;
using test::layers;
using test::scripted_executor;
using test::unit_problem;

namespace {

constexpr auto by_evict = [](const problem& p) { return evict(p); };

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

TEST_CASE("profile, plan, run: the plan is made with the measured times, and within the budget with its arena") {
  const training_graph g = layers(24);
  const std::int64_t baseline = unit_problem(g).graph().baseline_peak;
  std::vector<std::int64_t> profiled;
  const auto make = [&](launch_plan plan, bool timing) {
    if (timing) profiled.push_back(plan.peak_bytes());
    return std::make_unique<scripted_executor>(scripted_executor{
        std::move(plan), [&](op_id o, unsigned run) { return g.measured_seconds(o) * (run == 3 ? 30 : 1); }});
  };
  for (const int percent : {100, 70, 50, 35}) {
    CAPTURE(percent);
    planning_options options;
    options.budget = baseline * percent / 100 / 1000 * 1000;
    options.memory.alignment = 1;
    const auto made = profile_and_plan(g, make, by_evict, options);
    REQUIRE(made.ready());
    const flat_graph& s = made.instance->graph();
    for (std::size_t o = 0; o < s.num_operations; ++o)
      CHECK(s.time[o] == doctest::Approx(g.measured_seconds(op_id(o))));
    const check_report r = check(*made.instance, made.plan);
    REQUIRE(r.valid());
    CHECK(made.predicted_seconds == doctest::Approx(r.time));
    CHECK(made.baseline_seconds == doctest::Approx(s.baseline_time));
    CHECK(made.peak_bytes == r.peak_bytes);
    CHECK(made.peak_bytes <= options.budget);
    CHECK(made.arena_bytes <= options.budget);
    CHECK(made.arena_bytes == made.executor->plan().arena_bytes());
    // The clock goes as it did: a run takes what was predicted.
    made.executor->runs = 0;
    CHECK(made.executor->run(0).seconds - 0.5 == doctest::Approx(made.predicted_seconds));
    CHECK((made.predicted_seconds > made.baseline_seconds) == (percent < 100));
  }
  CHECK(profiled == std::vector<std::int64_t>(4, baseline));
}

TEST_CASE("sizes rounded up are planned for, and an arena above the budget has no executor") {
  const training_graph g = layers(24);
  const auto make = [&](launch_plan plan, bool) {
    return std::make_unique<scripted_executor>(
        scripted_executor{std::move(plan), [&](op_id o, unsigned) { return g.measured_seconds(o); }});
  };
  planning_options options;
  options.budget = 12'000;
  options.memory.alignment = 1024;  // each tensor of 1000 bytes takes 1024
  auto made = profile_and_plan(g, make, by_evict, options);
  REQUIRE(made.ready());
  CHECK(made.attempts == 1);
  CHECK(made.solved_budget == 11 * 1024);
  CHECK(made.arena_bytes == made.executor->plan().arena_bytes());
  CHECK(made.arena_bytes <= options.budget);
  CHECK(made.peak_bytes <= 11'000);
  // A solver that looks at no budget: the second solve has a lower one, and then no more are made.
  std::vector<std::int64_t> budgets;
  const auto listed = [&](const problem& p) {
    budgets.push_back(p.budget());
    solution s;
    s.plan = listed_order(p);
    return s;
  };
  options.attempts = 2;
  made = profile_and_plan(g, make, listed, options);
  CHECK_FALSE(made.ready());
  CHECK(made.attempts == 2);
  REQUIRE(budgets.size() == 2);
  CHECK(budgets[0] > budgets[1]);
  CHECK(contains(made.message, "found no schedule whose arena is within 12000 bytes, in 2 solves"));
  options.arena_within_budget = false;
  made = profile_and_plan(g, make, by_evict, options);
  REQUIRE(made.ready());
  CHECK(made.attempts == 1);
  CHECK(made.peak_bytes <= options.budget);
  CHECK(made.arena_bytes > options.budget);

  options.budget = 1000;
  made = profile_and_plan(g, make, by_evict, options);
  CHECK_FALSE(made.ready());
  CHECK_FALSE(made.message.empty());
  CHECK(made.measured.times.complete());  // what was measured is not lost
}

TEST_CASE("outputs in the caller's memory take no room in the arena, and what adds to a sum runs once") {
  const training_graph g = layers(24);
  std::vector<bool> measured_outside;
  const auto make = [&](launch_plan plan, bool timing) {
    if (timing)
      for (const tensor_id t : g.final_outputs()) measured_outside.push_back(plan.is_bound_output(t));
    return std::make_unique<scripted_executor>(
        scripted_executor{std::move(plan), [&](op_id o, unsigned) { return g.measured_seconds(o); }});
  };
  planning_options options;
  options.memory.alignment = 1;
  options.budget = unit_problem(g).graph().baseline_peak / 2;
  const auto inside = profile_and_plan(g, make, by_evict, options);
  REQUIRE(inside.ready());
  const std::vector<tensor_id> outputs(g.final_outputs().begin(), g.final_outputs().end());
  REQUIRE_FALSE(outputs.empty());
  for (const bool accumulates : {false, true}) {
    CAPTURE(accumulates);
    (accumulates ? options.accumulated_outputs : options.bound_outputs) = outputs;
    (accumulates ? options.bound_outputs : options.accumulated_outputs).clear();
    for (const bool arena : {true, false}) {
      CAPTURE(arena);
      options.arena_within_budget = arena;
      const auto made = profile_and_plan(g, make, by_evict, options);
      REQUIRE(made.ready());
      for (const tensor_id t : outputs) {
        CHECK(made.executor->plan().is_bound_output(t));
        CHECK(made.executor->plan().is_accumulated(t) == accumulates);
      }
      CHECK(made.arena_bytes <= options.budget);
      if (!arena) CHECK(made.peak_bytes <= options.budget);
      CHECK(made.arena_bytes <= made.peak_bytes);
      if (arena) CHECK(made.predicted_seconds <= inside.predicted_seconds);  // more room for the rest
      if (!accumulates) continue;
      for (const tensor_id t : outputs)
        for (const std::uint32_t o : made.instance->graph().producers[index(t)])
          CHECK(made.instance->graph().once[o] != 0);
    }
  }
  CHECK(std::count(measured_outside.begin(), measured_outside.end(), true) == 0);
}

TEST_CASE("a step too large to profile as it is listed is profiled under another schedule") {
  const training_graph g = layers(24);
  std::vector<std::int64_t> profiled;
  const auto make = [&](launch_plan plan, bool timing) {
    if (timing) profiled.push_back(plan.peak_bytes());
    return std::make_unique<scripted_executor>(
        scripted_executor{std::move(plan), [&](op_id o, unsigned) { return g.measured_seconds(o); }});
  };
  planning_options options;
  options.budget = 11'000;
  options.measuring_budget = 8'000;
  options.memory.alignment = 1;
  const auto made = profile_and_plan(g, make, by_evict, options);
  REQUIRE(made.ready());
  REQUIRE(profiled.size() == 1);
  CHECK(profiled[0] <= 8'000);
  CHECK(made.peak_bytes <= 11'000);
  CHECK(made.measured.times.complete());
  options.measuring_budget = 2'000;
  CHECK_THROWS_AS((void)profile_and_plan(g, make, by_evict, options), bad_argument);
}

namespace {

/// A random step of 30 operations over stand-in kernels, whose resident tensors are filled.
struct stand_in_step {
  explicit stand_in_step(std::uint64_t seed)
      : graph(test::random_graph(seed, {.operations = 30, .most_bytes = 400})),
        instance(graph, unit_cost{}),
        kernels(graph, instance) {
    memory.reserve(graph.num_tensors());
    for (std::size_t t = 0; t < graph.num_tensors(); ++t) {
      if (!graph.always_resident(tensor_id(t))) continue;
      memory.emplace_back(static_cast<std::size_t>(graph.bytes(tensor_id(t))));
      kernels.fill(tensor_id(t), memory.back(), seed);
      bindings.push_back({tensor_id(t), memory.back()});
    }
  }

  training_graph graph;
  problem instance;
  shared::stand_in_kernels kernels;
  std::vector<std::vector<std::byte>> memory{};
  std::vector<tensor_binding> bindings{};
};

}  // namespace

TEST_CASE("on the host: kernels are run, planned and run again, and the outputs are right") {
  std::size_t ready = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    stand_in_step step(seed);
    const training_graph& g = step.graph;
    const problem& p = step.instance;
    shared::stand_in_kernels& kernels = step.kernels;
    planning_options options;
    options.profile.runs = 3;
    options.budget = p.graph().baseline_peak * 9 / 10;
    options.arena_within_budget = false;
    options.streams = 1 + static_cast<std::uint32_t>(seed % 2);
    const auto made = make_planned(g, std::ref(kernels), step.bindings, by_evict, options);
    CHECK(made.measured.runs == 3);
    CHECK(made.measured.times.complete());
    CHECK(made.measured.step_seconds >= made.measured.outside_seconds);
    if (!made.ready()) continue;
    ++ready;
    const host_report r = made.executor->run(7);
    CHECK(r.status == run_status::done);
    CHECK(made.executor->plan().peak_bytes() == made.peak_bytes);
    CHECK(r.times.empty());
    CHECK(made.executor->plan().num_streams() == options.streams);
    CHECK(made.predicted_seconds == made.executor->plan().assignment().makespan);
    CHECK(made.predicted_seconds <= check(*made.instance, made.plan).time * (1 + 1e-12));
    const shared::stand_in_values expected = kernels.expected(7, seed);
    for (const tensor_id t : g.final_outputs())
      if (!g.always_resident(t))
        CHECK(shared::stand_in_kernels::value(made.executor->output(t)) == expected.tensors[index(t)]);
  }
  CHECK(ready >= 4);
}

TEST_CASE("with a link, copies and recomputation are planned by the measured times, and run on the host") {
  std::size_t with_copies = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    stand_in_step step(seed);
    const training_graph& g = step.graph;
    const problem& p = step.instance;
    shared::stand_in_kernels& kernels = step.kernels;
    planning_options options;
    options.profile.runs = 1;
    options.budget = p.graph().baseline_peak * 9 / 10;
    options.arena_within_budget = seed % 2 == 0;
    options.memory.alignment = 1;
    options.link = host_link{.out = 1e12, .in = 1e12, .latency = 0};  // copies cost next to nothing
    options.host_budget = 500;
    const auto by_offload = [](const problem& q) { return offload(q, {.run = {.work_limit = 20'000}}); };
    const auto made = make_planned(g, std::ref(kernels), step.bindings, by_offload, options);
    CHECK(made.instance->link() == options.link);
    CHECK(made.instance->host_budget() == 500);
    if (!made.ready()) continue;
    const check_report report = check(made.instance->with_budget(problem::unlimited), made.plan);
    REQUIRE(report.valid());
    CHECK(report.host_peak_bytes <= 500);
    CHECK(made.predicted_seconds == doctest::Approx(report.time));
    CHECK(made.host_arena_bytes >= report.host_peak_bytes);
    CHECK((made.host_arena_bytes > 0) == made.plan.has_copies());
    with_copies += made.plan.has_copies() ? 1 : 0;
    CHECK(made.executor->run(7).status == run_status::done);
    const shared::stand_in_values expected = kernels.expected(7, seed);
    for (const tensor_id t : g.final_outputs())
      if (!g.always_resident(t))
        CHECK(shared::stand_in_kernels::value(made.executor->output(t)) == expected.tensors[index(t)]);
  }
  CHECK(with_copies >= 3);
}

TEST_CASE("a cancelled profile makes no executor") {
  const training_graph g = layers(3);
  shared::stand_in_kernels kernels(g, unit_problem(g));
  std::vector<std::byte> x(1000);
  kernels.fill(tensor_id{0}, x, 0);
  const std::vector<tensor_binding> bindings{{tensor_id{0}, x}};
  std::stop_source stop;
  stop.request_stop();
  planning_options options;
  options.profile.stop = stop.get_token();
  const auto made = make_planned(g, std::ref(kernels), bindings, by_evict, options);
  CHECK_FALSE(made.ready());
  CHECK(contains(made.message, "cancelled"));
  CHECK_THROWS_AS((void)make_planned(g, std::ref(kernels), {}, by_evict), bad_argument);  // nothing is bound
}

TEST_CASE("the caller's arena need not have room for the profile") {
  const training_graph g = layers(24);
  shared::stand_in_kernels kernels(g, unit_problem(g));
  std::vector<std::byte> x(1000);
  kernels.fill(tensor_id{0}, x, 0);
  const std::vector<tensor_binding> bindings{{tensor_id{0}, x}};
  planning_options options;
  options.profile.runs = 1;
  options.budget = 12'000;
  options.memory.alignment = 8;
  std::vector<std::uint64_t> arena(12'000 / 8);
  host_options host;
  host.arena = std::as_writable_bytes(std::span(arena));
  const auto made = make_planned(g, std::ref(kernels), bindings, by_evict, options, host);
  REQUIRE(made.ready());
  CHECK(made.executor->arena().data() == host.arena.data());
  CHECK(made.executor->run().status == run_status::done);
}

TEST_CASE("by the real clock: no operation is measured shorter than it took") {
  const training_graph g = layers(3);
  shared::stand_in_options burn;
  burn.burn = 1;
  burn.sleep = true;
  shared::stand_in_kernels kernels(g, problem(g, measured_cost{}), burn);
  std::vector<std::byte> x(1000);
  kernels.fill(tensor_id{0}, x, 0);
  const std::vector<tensor_binding> bindings{{tensor_id{0}, x}};
  planning_options options;
  options.profile.runs = 3;
  options.profile.statistic = time_statistic::least;
  const auto made = make_planned(g, std::ref(kernels), bindings, by_evict, options);
  REQUIRE(made.ready());
  for (std::size_t o = 0; o < g.num_operations(); ++o)
    CHECK(made.measured.times.seconds[o] >= 0.999 * g.measured_seconds(op_id(o)));
  CHECK(made.predicted_seconds >= 0.999 * problem(g, measured_cost{}).graph().baseline_time);
  CHECK(made.executor->run().seconds >= 0.999 * problem(g, measured_cost{}).graph().baseline_time);
}
