// SPDX-License-Identifier: BSL-1.0
// labels: threads slow
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
#include "remat/cost/measured.hpp"
#include "remat/cost/unit.hpp"
#include "remat/execute/stand_in.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/solver/evict.hpp"
#include "support/random_graph.hpp"

using namespace remat;

namespace {

constexpr double not_measured = std::numeric_limits<double>::quiet_NaN();
constexpr auto by_evict = [](const problem& p) { return evict(p); };

/// A chain of layers whose operations take the seconds that the graph says: as measured as a test needs it.
training_graph layers(int n) {
  training_graph g;
  std::vector<tensor_id> y{g.add_tensor({.name = "x", .bytes = 1000, .kind = tensor_kind::input})};
  const auto add = [&](const std::string& name, std::vector<tensor_id> in, tensor_id out, double seconds) {
    operation_spec o;
    o.name = name;
    o.inputs = std::move(in);
    o.outputs = {out};
    o.seconds = seconds;
    g.add_operation(o);
  };
  for (int i = 0; i < n; ++i) {
    y.push_back(g.add_tensor({.name = "y", .bytes = 1000}));
    add("forward " + std::to_string(i), {y[y.size() - 2]}, y.back(), 1e-3 * (1 + i % 3));
  }
  tensor_id gradient = y.back();
  for (int i = n; i > 0; --i) {
    const tensor_id next = g.add_tensor({.name = "gradient", .bytes = 1000});
    add("backward " + std::to_string(i), {y[static_cast<std::size_t>(i)], gradient}, next, 2e-3);
    gradient = next;
  }
  g.add_final_output(gradient);
  return g;
}

problem unit_problem(const training_graph& g) { return problem(g, unit_cost{}); }

launch_plan planned(const training_graph& g, const problem& p, const schedule& s, const memory_plan& arena) {
  return launch_plan(g, p, s.steps, {arena.offsets, arena.arena_bytes, arena.alignment});
}

/// An executor that runs nothing: the time of a launch is `clock(operation, run)`, its status `status(run)`.
struct scripted_executor {
  struct launch_time {
    std::chrono::duration<double> duration{};
  };
  struct run_report {
    run_status status = run_status::done;
    double seconds = 0;
    std::vector<launch_time> times{};
  };
  launch_plan launches;
  std::function<double(op_id, unsigned)> clock;
  std::function<run_status(unsigned)> status = [](unsigned) { return run_status::done; };
  std::size_t forget = 0;  // times that are not noted
  unsigned runs = 0;
  std::vector<std::uint64_t> seeds{};

  [[nodiscard]] const launch_plan& plan() const { return launches; }
  run_report run(std::uint64_t seed, const std::stop_token& = {}) {
    run_report r;
    r.status = status(runs);
    for (const launch& l : launches.launches()) {
      r.times.push_back({std::chrono::duration<double>(clock(l.operation, runs))});
      r.seconds += r.times.back().duration.count();
    }
    r.seconds += 0.5;
    r.times.resize(r.times.size() - forget);
    seeds.push_back(seed);
    ++runs;
    return r;
  }
};
static_assert(timed_executor<scripted_executor>);
static_assert(timed_executor<host_executor<kernel_table<host_call>>>);
static_assert(cost_model<measured_times, training_graph>);

scripted_executor scripted(const training_graph& g, const schedule& s, std::function<double(op_id, unsigned)> clock) {
  const problem p = unit_problem(g);
  return {planned(g, p, s, plan_memory(lifetimes_of(p, s))), std::move(clock)};
}

template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const error& e) {
    return e.what();
  }
  return "";
}
bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

TEST_CASE("median and least") {
  std::vector<double> odd{5, 1, 9}, even{4, 1, 100, 2}, none;
  CHECK(summarize(odd, time_statistic::median) == 5);
  CHECK(summarize(even, time_statistic::median) == 3);
  CHECK(summarize(even, time_statistic::least) == 1);
  CHECK(std::isnan(summarize(none, time_statistic::median)));
  CHECK(std::isnan(summarize(none, time_statistic::least)));
}

TEST_CASE("times that are gathered are those of the operations, whatever ran them") {
  launch_times times(3);
  for (const double s : {3.0, 1.0, 2.0}) times.add(op_id{1}, s);
  times.add(op_id{2}, 0);
  const measured_times t = times.summary();
  CHECK(std::isnan(t.seconds[0]));
  CHECK(t.seconds[1] == 2);
  CHECK(t.seconds[2] == 0);
  CHECK(times.summary(time_statistic::least).seconds[1] == 1);
  CHECK(times.of(op_id{1}).size() == 3);
  CHECK_FALSE(t.complete());
  CHECK_THROWS_AS(times.add(op_id{3}, 1), bad_argument);
  for (const double bad : {-1.0, not_measured, std::numeric_limits<double>::infinity()})
    CHECK_THROWS_AS(times.add(op_id{0}, bad), bad_cost);
}

TEST_CASE("what was not measured is an error with a name, until it is filled") {
  const training_graph g = layers(2);
  const measured_times t{{1, not_measured, 3}};
  CHECK(t.time(g, op_id{0}) == 1);
  CHECK(contains(message_of([&] { (void)t.time(g, op_id{1}); }), "operation 1 (forward 1) was not measured"));
  CHECK_THROWS_AS((void)t.time(g, op_id{3}), bad_cost);
  CHECK_THROWS_AS(problem(g, t), bad_cost);
  const measured_times full = t.filled(g, measured_cost{});
  CHECK(full.complete());
  CHECK(full.seconds == std::vector<double>{1, 2e-3, 3, 2e-3});
  CHECK_NOTHROW(problem(g, full));
}

TEST_CASE("a profile is the median over the runs that count, of all launches of an operation") {
  const training_graph g = layers(2);
  const problem p = unit_problem(g);
  // Operation 0 runs twice.
  schedule s;
  s.compute(op_id{0});
  s.compute(op_id{1});
  s.free(tensor_id{1});
  s.compute(op_id{2});
  s.free(tensor_id{2});
  s.compute(op_id{0});
  s.compute(op_id{3});
  s.free(tensor_id{1});
  s.free(tensor_id{3});
  REQUIRE(check(p, s).valid());
  // Two warm runs of 100 s, then 1 to 5 s; one of them disturbed.
  auto e = scripted(g, s, [](op_id o, unsigned run) {
    if (run < 2) return 100.0;
    if (run == 4 && o == op_id{1}) return 50.0;
    return static_cast<double>(run - 1) * static_cast<double>(index(o) + 1);
  });
  profile_options options;
  options.runs = 5;
  options.step_seed = 40;
  const profile_report r = profile(e, options);
  CHECK(e.runs == 7);
  CHECK(e.seeds == std::vector<std::uint64_t>{40, 41, 42, 43, 44, 45, 46});
  CHECK(r.runs == 5);
  CHECK(r.times.seconds == std::vector<double>{3, 8, 9, 12});  // operation 1: 2 4 50 8 10
  CHECK(r.outside_seconds == doctest::Approx(0.5));
  options.statistic = time_statistic::least;
  e.runs = 0;
  CHECK(profile(e, options).times.seconds == std::vector<double>{1, 2, 3, 4});
  CHECK(profile(e, options).step_seconds == doctest::Approx(11 * 8 + 0.5));  // runs go on from 7: factors 8 …
}

TEST_CASE("a profile ends at its limit, with one run that counts, and where a run is cancelled") {
  const training_graph g = layers(3);
  const schedule s = listed_order(unit_problem(g));
  auto e = scripted(g, s, [](op_id, unsigned run) { return run + 1.0; });
  profile_options options;
  options.time_limit = std::chrono::nanoseconds(0);
  CHECK(profile(e, options).runs == 1);
  CHECK(e.runs == 1);
  e.status = [](unsigned run) { return run < 6 ? run_status::done : run_status::cancelled; };
  options = {};
  const profile_report r = profile(e, options);
  CHECK(r.runs == 3);  // runs 1 and 2 are warm, 3 to 5 count
  CHECK(r.times.seconds[0] == 5);
  e.status = [](unsigned) { return run_status::cancelled; };
  const profile_report none = profile(e, options);
  CHECK(none.runs == 0);
  CHECK(std::isnan(none.step_seconds));
  CHECK(std::isnan(none.times.seconds[0]));

  e.status = [](unsigned) { return run_status::done; };
  e.forget = 1;
  CHECK_THROWS_AS((void)profile(e, options), bad_argument);
  options.runs = 0;
  CHECK_THROWS_AS((void)profile(e, options), bad_argument);
}

TEST_CASE("the listed order is the baseline") {
  test::random_graph_options shape;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    shape.operations = 3 + static_cast<std::uint32_t>(seed % 20);
    const problem p(test::random_graph(seed, shape), measured_cost{});
    const check_report r = check(p, listed_order(p));
    REQUIRE(r.valid());
    CHECK(r.peak_bytes == p.graph().baseline_peak);
    CHECK(r.time == doctest::Approx(p.graph().baseline_time));
  }
}

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

TEST_CASE("an arena with gaps is fitted into the budget by solving with less") {
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
  CHECK(made.attempts > 1);
  CHECK(made.solved_budget < options.budget);
  CHECK(made.arena_bytes <= options.budget);
  options.attempts = 1;
  made = profile_and_plan(g, make, by_evict, options);
  CHECK_FALSE(made.ready());
  CHECK(contains(made.message, "the arena takes 12288 bytes, more than the budget of 12000"));
  options.arena_within_budget = false;
  made = profile_and_plan(g, make, by_evict, options);
  REQUIRE(made.ready());
  CHECK(made.peak_bytes <= options.budget);
  CHECK(made.arena_bytes > options.budget);

  options.budget = 1000;
  made = profile_and_plan(g, make, by_evict, options);
  CHECK_FALSE(made.ready());
  CHECK_FALSE(made.message.empty());
  CHECK(made.measured.times.complete());  // what was measured is not lost
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
  options.profile_budget = 8'000;
  options.memory.alignment = 1;
  const auto made = profile_and_plan(g, make, by_evict, options);
  REQUIRE(made.ready());
  REQUIRE(profiled.size() == 1);
  CHECK(profiled[0] <= 8'000);
  CHECK(made.peak_bytes <= 11'000);
  CHECK(made.measured.times.complete());
  options.profile_budget = 2'000;
  CHECK_THROWS_AS((void)profile_and_plan(g, make, by_evict, options), bad_argument);
}

TEST_CASE("on the host: kernels are run, planned and run again, and the outputs are right") {
  test::random_graph_options shape;
  shape.operations = 30;
  shape.most_bytes = 400;
  std::size_t ready = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const training_graph g = test::random_graph(seed, shape);
    const problem p(g, unit_cost{});
    stand_in_kernels kernels(g, p);
    std::vector<std::vector<std::byte>> memory;
    std::vector<tensor_binding> bindings;
    memory.reserve(g.num_tensors());
    for (std::size_t t = 0; t < g.num_tensors(); ++t) {
      if (!g.always_resident(tensor_id(t))) continue;
      memory.emplace_back(static_cast<std::size_t>(g.bytes(tensor_id(t))));
      kernels.fill(tensor_id(t), memory.back(), seed);
      bindings.push_back({tensor_id(t), memory.back()});
    }
    planning_options options;
    options.profile.runs = 3;
    options.budget = p.graph().baseline_peak * 9 / 10;
    options.arena_within_budget = false;
    options.streams = 1 + static_cast<std::uint32_t>(seed % 2);
    const auto made = make_planned(g, std::ref(kernels), bindings, by_evict, options);
    CHECK(made.measured.runs == 3);
    CHECK(made.measured.times.complete());
    CHECK(made.measured.step_seconds >= made.measured.outside_seconds);
    if (!made.ready()) continue;
    ++ready;
    const host_report r = made.executor->run(7);
    CHECK(r.status == run_status::done);
    CHECK(r.peak_bytes == made.peak_bytes);
    CHECK(r.times.empty());
    CHECK(made.executor->plan().num_streams() == options.streams);
    CHECK(made.predicted_seconds == made.executor->plan().assignment().makespan);
    CHECK(made.predicted_seconds <= check(*made.instance, made.plan).time * (1 + 1e-12));
    const stand_in_values expected = kernels.expected(7, seed);
    for (const tensor_id t : g.final_outputs())
      if (!g.always_resident(t)) CHECK(stand_in_kernels::value(made.executor->output(t)) == expected.tensors[index(t)]);
  }
  CHECK(ready >= 4);
}

TEST_CASE("a cancelled profile makes no executor") {
  const training_graph g = layers(3);
  stand_in_kernels kernels(g, unit_problem(g));
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
  stand_in_kernels kernels(g, unit_problem(g));
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
  stand_in_options burn;
  burn.burn = 1;
  burn.sleep = true;
  stand_in_kernels kernels(g, problem(g, measured_cost{}), burn);
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
