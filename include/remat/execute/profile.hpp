// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/cost/callable.hpp"
#include "remat/cost/concepts.hpp"
#include "remat/cost/unit.hpp"
#include "remat/execute/host.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/memory/plan.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat {

/// The seconds that operations took. Model of `cost_model`.
struct measured_times {
  std::vector<double> seconds{};  ///< of each operation; NaN: not measured

  [[nodiscard]] bool complete() const noexcept {
    return std::none_of(seconds.begin(), seconds.end(), [](double s) { return std::isnan(s); });
  }

  /// Throws `bad_cost` that names the operation if it was not measured.
  template <data_flow_graph G>
  [[nodiscard]] double time(const G& g, op_id o) const {
    if (index(o) < seconds.size() && !std::isnan(seconds[index(o)])) return seconds[index(o)];
    std::string text = "operation " + std::to_string(index(o));
    if constexpr (named_graph<G>) text += " (" + std::string(std::string_view(g.name(o))) + ")";
    throw bad_cost(text + " was not measured: it did not run in the schedule that was profiled");
  }

  /// The same, and what was not measured from another model (a fitted one, say).
  template <data_flow_graph G, cost_model<G> C>
  [[nodiscard]] measured_times filled(const G& g, const C& model) const {
    measured_times out{seconds};
    out.seconds.resize(static_cast<std::size_t>(g.num_operations()), std::numeric_limits<double>::quiet_NaN());
    for (std::size_t o = 0; o < out.seconds.size(); ++o)
      if (std::isnan(out.seconds[o])) out.seconds[o] = static_cast<double>(model.time(g, static_cast<op_id>(o)));
    return out;
  }
};

/// What stands for several measurements of one thing.
enum class time_statistic : std::uint8_t {
  median,  ///< of an even number, the mean of the two in the middle
  least
};

/// The statistic of some times; NaN of none. Reorders them.
[[nodiscard]] inline double summarize(std::span<double> times, time_statistic statistic) {
  if (times.empty()) return std::numeric_limits<double>::quiet_NaN();
  if (statistic == time_statistic::least) return *std::min_element(times.begin(), times.end());
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return times.size() % 2 == 1 ? *middle : (*std::max_element(times.begin(), middle) + *middle) / 2;
}

/// Times of launches, gathered over any number of runs, of any executor and any schedules of one graph.
class launch_times {
 public:
  explicit launch_times(std::size_t num_operations) : of_(num_operations) {}

  /// Throws `bad_argument` for an operation that there is not, `bad_cost` for a time that is negative or not finite.
  void add(op_id o, double seconds) {
    if (index(o) >= of_.size())
      throw bad_argument("there is no operation " + std::to_string(index(o)) + "; there are " +
                         std::to_string(of_.size()));
    if (!(seconds >= 0) || !std::isfinite(seconds))
      throw bad_cost("operation " + std::to_string(index(o)) + " took " + std::to_string(seconds) +
                     " seconds; a time must be finite and not negative");
    of_[index(o)].push_back(seconds);
  }
  /// A run: `seconds_of(i)` is what launch i of the plan took.
  template <std::invocable<std::size_t> F>
  void add_run(const launch_plan& plan, F&& seconds_of) {
    for (std::size_t i = 0; i < plan.size(); ++i) add(plan.launches()[i].operation, static_cast<double>(seconds_of(i)));
  }

  [[nodiscard]] std::span<const double> of(op_id o) const noexcept { return of_[index(o)]; }
  [[nodiscard]] measured_times summary(time_statistic statistic = time_statistic::median) const {
    measured_times out;
    std::vector<double> times;
    for (const std::vector<double>& all : of_) {
      times = all;
      out.seconds.push_back(summarize(times, statistic));
    }
    return out;
  }

 private:
  std::vector<std::vector<double>> of_;
};

/// An executor whose runs say how long each launch took: `host_executor` with the option `timing`, and any other type
/// with these members. Times of a GPU that arrive after the run, by events: see `launch_times`.
template <class E>
concept timed_executor = requires(E& e, std::uint64_t seed, const std::stop_token& stop) {
  { e.plan() } -> std::convertible_to<const launch_plan&>;
  { e.run(seed, stop).seconds } -> std::convertible_to<double>;
  { e.run(seed, stop).status } -> std::convertible_to<run_status>;
  std::chrono::duration<double>(e.run(seed, stop).times[0].duration);
};

struct profile_options {
  unsigned warm_up = 2;  ///< runs before those that count: memory is touched for the first time, caches fill
  unsigned runs = 7;     ///< that count, at least 1
  std::chrono::nanoseconds time_limit = std::chrono::nanoseconds::max();  ///< no further run when it has passed
  time_statistic statistic = time_statistic::median;
  std::uint64_t step_seed = 0;  ///< of the first run; each has the next
  std::stop_token stop{};       ///< given to each run; a run that it cancels is the last one and does not count
};

/// What some runs of one schedule took.
struct profile_report {
  measured_times times{};  ///< operations that the schedule does not run are NaN
  double step_seconds = std::numeric_limits<double>::quiet_NaN();     ///< wall clock of a run, by the same statistic
  double outside_seconds = std::numeric_limits<double>::quiet_NaN();  ///< … of it, outside of the kernels of one stream
  unsigned runs = 0;  ///< that counted; less than wished: the limit has passed, or a run was cancelled
};

/// Runs the executor's step several times and takes the median (or the least) time of each operation.
///
/// An operation that the schedule runs several times has all its runs counted. At least one run counts, unless it is
/// cancelled. Throws `bad_argument` for no runs or where the executor notes no times, and what the executor throws.
template <timed_executor E>
[[nodiscard]] profile_report profile(E& executor, const profile_options& options = {}) {
  if (options.runs == 0) throw bad_argument("runs is 0; a profile needs at least 1");
  using clock = std::chrono::steady_clock;
  const clock::time_point begun = clock::now();
  const launch_plan& plan = executor.plan();
  launch_times times(plan.num_operations());
  std::vector<double> steps, outside;
  profile_report out;
  for (unsigned i = 0; i < options.warm_up + options.runs; ++i) {
    // What is warm at the limit still counts once.
    const bool late =
        options.time_limit != std::chrono::nanoseconds::max() && clock::now() - begun >= options.time_limit;
    if (late && out.runs > 0) break;
    const auto report = executor.run(options.step_seed + i, options.stop);
    if (report.status != run_status::done) break;
    if (i < options.warm_up && !late) continue;
    if (report.times.size() != plan.size())
      throw bad_argument("the executor noted " + std::to_string(report.times.size()) + " times of " +
                         std::to_string(plan.size()) + " launches; it needs the option `timing`");
    double inside = 0;
    times.add_run(plan, [&](std::size_t launch) {
      const double s = std::chrono::duration<double>(report.times[launch].duration).count();
      inside += s;
      return s;
    });
    steps.push_back(report.seconds);
    outside.push_back(std::max(0.0, report.seconds - inside));
    ++out.runs;
    if (late) break;
  }
  out.times = times.summary(options.statistic);
  out.step_seconds = summarize(steps, options.statistic);
  out.outside_seconds = summarize(outside, options.statistic);
  return out;
}

/// The listed order with nothing recomputed, every tensor freed right after its last use; all operations run, also
/// those that nobody needs.
[[nodiscard]] inline schedule listed_order(const problem& p) {
  const flat_graph& s = p.graph();
  std::vector<std::uint32_t> left(s.num_tensors, 0);  // reads, and writes, that are still to come
  for (std::size_t t = 0; t < s.num_tensors; ++t)
    left[t] = static_cast<std::uint32_t>(s.producers[t].size() + s.consumers[t].size());
  schedule out;
  for (std::uint32_t o = 0; o < s.num_operations; ++o) {
    out.compute(static_cast<op_id>(o));
    for (const auto* rows : {&s.inputs, &s.outputs})
      for (const std::uint32_t t : (*rows)[o])
        if (--left[t] == 0 && !s.final_output[t]) out.free(static_cast<tensor_id>(t));
  }
  return out;
}

struct planning_options {
  profile_options profile{};
  std::int64_t budget = problem::unlimited;  ///< bytes, of the schedule's peak
  bool arena_within_budget = true;           ///< and of the arena, which gaps make larger
  unsigned attempts = 6;                     ///< solves, each with less memory, for an arena within the budget
  /// Bytes that the first schedule, the one that is profiled, may take as its peak. The listed order takes as many as
  /// the baseline; with less, operations are profiled under a schedule that the solver finds with all times alike.
  std::int64_t profile_budget = problem::unlimited;
  std::uint32_t streams = 1;     ///< of the executor that is returned; profiles are taken on one
  memory_plan_options memory{};  ///< of both arenas
};

/// A step that was profiled, planned with the measured times, and is ready to run.
template <class Executor>
struct planned_step {
  std::unique_ptr<Executor> executor{};  ///< none: no schedule was found, or none whose arena fits; see `message`
  profile_report measured{};             ///< of the first schedule
  std::optional<problem> instance{};     ///< with the measured times and the budget
  schedule plan{};
  double predicted_seconds = 0;  ///< of a step: the measured times along the plan, on `streams` streams
  double baseline_seconds = 0;   ///< … with nothing recomputed, on one stream
  std::int64_t peak_bytes = 0;
  std::int64_t arena_bytes = 0;
  std::int64_t solved_budget = 0;  ///< what the last solve had: less than the budget where the arena asked for it
  unsigned attempts = 0;           ///< solves
  std::string message{};           ///< one line; the solver's, unless there is no executor for another reason

  [[nodiscard]] bool ready() const noexcept { return executor != nullptr; }
};

/// Profiles a step, plans it with what was measured, and makes the executor of the plan.
///
///  - `make(launch_plan, bool timing)` gives a `std::unique_ptr` to an executor, ready to run (its tensors bound); the
///    one that is profiled has `timing`.
///  - `solve(problem)` gives something with `.plan`, an optional schedule, and `.message`: any solver does, with its
///    options bound by a lambda.
///
/// Operations that the first schedule did not run are needed by nobody; they count 0 seconds. Where the arena is to be
/// within the budget and is not, as addresses leave gaps, the step is solved again with as much less memory.
/// Throws what a `problem`, `plan_memory`, a `launch_plan` and the callables throw; `bad_argument` where no schedule
/// can be profiled within `profile_budget`.
template <sized_graph G, class Make, class Solve>
requires std::invocable<Make&, launch_plan, bool> && std::invocable<Solve&, const problem&>
[[nodiscard]] auto profile_and_plan(const G& graph, Make&& make, Solve&& solve, const planning_options& options = {}) {
  using executor_type = typename std::invoke_result_t<Make&, launch_plan, bool>::element_type;
  planned_step<executor_type> out;

  {  // The first schedule. Its executor, and its arena, are gone before the next one is made.
    const problem alike(graph, unit_cost{});
    schedule first = listed_order(alike);
    if (alike.graph().baseline_peak > options.profile_budget) {
      auto found = solve(alike.with_budget(options.profile_budget));
      if (!found.plan)
        throw bad_argument("no schedule to profile within " + std::to_string(options.profile_budget) + " bytes" +
                           (found.message.empty() ? std::string() : ": " + std::string(found.message)));
      first = *std::move(found.plan);
    }
    const memory_plan arena = plan_memory(lifetimes_of(alike, first), options.memory);
    const auto executor =
        make(launch_plan(graph, alike, first.steps, {arena.offsets, arena.arena_bytes, arena.alignment}), true);
    out.measured = profile(*executor, options.profile);
    if (out.measured.runs == 0) {
      out.message = "the profile was cancelled before a run had ended";
      return out;
    }
  }
  out.instance.emplace(graph, out.measured.times.filled(graph, callable_cost{[](op_id) { return 0.0; }}),
                       options.budget);
  const problem& p = *out.instance;
  out.baseline_seconds = p.graph().baseline_time;

  std::int64_t budget = options.budget;
  while (out.attempts < std::max(1u, options.attempts)) {
    ++out.attempts;
    out.solved_budget = budget;
    auto found = solve(p.with_budget(budget));
    out.message = std::string(found.message);
    if (!found.plan) {
      if (out.message.empty()) out.message = "the solver found no schedule";
      if (budget < options.budget)
        out.message += " (within " + std::to_string(budget) + " bytes, for an arena within " +
                       std::to_string(options.budget) + ")";
      return out;
    }
    out.plan = *std::move(found.plan);
    const memory_plan arena = plan_memory(lifetimes_of(p, out.plan), options.memory);
    out.arena_bytes = arena.arena_bytes;
    launch_plan launches(graph, p, out.plan.steps, {arena.offsets, arena.arena_bytes, arena.alignment},
                         options.streams);
    out.peak_bytes = launches.peak_bytes();
    out.predicted_seconds = launches.assignment().makespan;
    if (!options.arena_within_budget || out.arena_bytes <= options.budget) {
      out.executor = make(std::move(launches), false);
      return out;
    }
    const std::int64_t over = out.arena_bytes - options.budget;
    budget = std::min(budget, out.peak_bytes) - over;
    if (budget < 0) break;
  }
  out.message = "the arena takes " + std::to_string(out.arena_bytes) + " bytes, more than the budget of " +
                std::to_string(options.budget) + ", after " + std::to_string(out.attempts) + " solves";
  return out;
}

/// Memory of a tensor that is always resident.
struct tensor_binding {
  tensor_id tensor{};
  std::span<const std::byte> memory{};
};

/// The same on the host: kernels, and the memory of parameters and inputs.
///
/// `host.timing` is that of the executor that is returned; a profile always notes times, and does not watch
/// (`debug`, `check_inputs`), and takes memory from `host.memory` where the arena that is given is too small for it.
/// The kernels are copied for the profile unless they are given by reference (`std::ref`).
///
///     auto step = make_planned(graph, kernels, bindings, [](const problem& p) { return evict(p); },
///                              {.budget = bytes});
///     step.executor->run();  // predicted: step.predicted_seconds
template <sized_graph G, kernels_for<host_stream> Kernels, class Solve>
[[nodiscard]] planned_step<host_executor<Kernels>> make_planned(const G& graph, Kernels kernels,
                                                                std::span<const tensor_binding> bindings, Solve&& solve,
                                                                const planning_options& options = {},
                                                                const host_options& host = {}) {
  const auto make = [&](launch_plan plan, bool timing) {
    host_options chosen = host;
    if (timing) {
      chosen.timing = true;
      chosen.debug = host_debug::off;
      chosen.check_inputs = false;
      if (chosen.arena.size() < static_cast<std::uint64_t>(plan.arena_bytes())) chosen.arena = {};
    }
    auto executor = std::make_unique<host_executor<Kernels>>(std::move(plan), kernels, chosen);
    for (const tensor_binding& b : bindings) executor->bind(b.tensor, b.memory);
    return executor;
  };
  return profile_and_plan(graph, make, solve, options);
}

}  // namespace remat
