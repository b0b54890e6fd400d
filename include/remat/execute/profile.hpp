// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>

#include "remat/core/detail/words.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/fit_arena.hpp"
#include "remat/execute/host.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/simplify.hpp"

namespace REMAT_NAMESPACE {

/// The measured times of operations. Model of `cost_model`.
struct measured_times {
  std::vector<double> seconds{};  ///< the time of each operation; NaN: not measured

  /// True if every operation was measured.
  [[nodiscard]] bool complete() const noexcept {
    return std::none_of(seconds.begin(), seconds.end(), [](double s) { return std::isnan(s); });
  }

  /// The measured time of operation `o` in seconds. Throws `bad_cost` that names the operation if it was not measured.
  template <data_flow_graph G>
  [[nodiscard]] double time(const G& g, op_id o) const {
    if (index(o) < seconds.size() && !std::isnan(seconds[index(o)])) return seconds[index(o)];
    throw bad_cost(detail::read_arguments(g).label(o) +
                   " was not measured: it did not run in the schedule that was profiled");
  }

  /// These times, with those of another model (a fitted one, for instance) for operations that were not measured.
  template <data_flow_graph G, cost_model<G> C>
  [[nodiscard]] measured_times filled(const G& g, const C& model) const {
    measured_times out{seconds};
    out.seconds.resize(static_cast<std::size_t>(g.num_operations()), std::numeric_limits<double>::quiet_NaN());
    for (std::size_t o = 0; o < out.seconds.size(); ++o)
      if (std::isnan(out.seconds[o])) out.seconds[o] = static_cast<double>(model.time(g, static_cast<op_id>(o)));
    return out;
  }
};

/// The number that replaces several measurements of one quantity.
enum class time_statistic : std::uint8_t {
  median,  ///< the middle run; of an even number, the mean of the two in the middle
  least    ///< the least of them
};

/// The statistic of some times; NaN if there are none. Reorders the times. O(n) time.
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
  /// No times yet, of a graph with so many operations.
  explicit launch_times(std::size_t num_operations) : of_(num_operations) {}

  /// Adds one time of operation `o`. Throws `bad_argument` if the graph has no operation `o`, `bad_cost` if `seconds`
  /// is negative or not finite.
  void add(op_id o, double seconds) {
    if (index(o) >= of_.size())
      throw bad_argument("there is no operation " + std::to_string(index(o)) + "; there are " +
                         std::to_string(of_.size()));
    if (!(seconds >= 0) || !std::isfinite(seconds))
      throw bad_cost("operation " + std::to_string(index(o)) + " took " + detail::number_text(seconds) +
                     " seconds; a time must be finite and not negative");
    of_[index(o)].push_back(seconds);
  }
  /// The statistic of each operation's times.
  [[nodiscard]] measured_times summary(time_statistic statistic = time_statistic::median) const {
    measured_times out;
    for (std::vector<double> times : of_) out.seconds.push_back(summarize(times, statistic));
    return out;
  }

 private:
  std::vector<std::vector<double>> of_;
};

/// An executor whose runs report the time of each launch: `host_executor` with the option `timing`, and any other type
/// with these members. A GPU's times arrive after the run, by events: add them to `launch_times`.
template <class E>
concept timed_executor = requires(E& e, std::uint64_t seed, const std::stop_token& stop) {
  { e.plan() } -> std::convertible_to<const launch_plan&>;
  { e.run(seed, stop).seconds } -> std::convertible_to<double>;
  { e.run(seed, stop).status } -> std::convertible_to<run_status>;
  std::chrono::duration<double>(e.run(seed, stop).times[0].duration);
};

/// Options of `profile`.
struct profile_options {
  unsigned warm_up = 2;  ///< runs before those that count: memory is touched for the first time, caches fill
  unsigned runs = 7;     ///< the runs that count, at least 1
  std::chrono::nanoseconds time_limit = std::chrono::nanoseconds::max();  ///< wall clock; no run begins after it
  time_statistic statistic = time_statistic::median;  ///< replaces the several times of an operation
  std::uint64_t step_seed = 0;                        ///< the seed of the first run; each run has the next one
  std::stop_token stop{};  ///< given to each run; a run that it cancels is the last one and does not count
};

/// The measured times of one schedule.
struct profile_report {
  measured_times times{};  ///< NaN for operations that the schedule does not run
  double step_seconds = std::numeric_limits<double>::quiet_NaN();     ///< wall clock of a run, by the same statistic
  double outside_seconds = std::numeric_limits<double>::quiet_NaN();  ///< the part of a run outside of the kernels
  unsigned runs = 0;  ///< the runs that counted: fewer than asked for if the limit passed or a run was cancelled
};

/// Runs the executor's training step several times, and takes the median (or the least) time of each operation.
///
/// If the schedule runs an operation several times, all its runs count. At least one run counts, unless it is
/// cancelled. Times of several streams add up: profile on one stream. Throws `bad_argument` if `runs` is 0 or the
/// executor notes no times; exceptions of the executor propagate.
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
    const bool late =
        options.time_limit != std::chrono::nanoseconds::max() && clock::now() - begun >= options.time_limit;
    if (late && out.runs > 0) break;
    const auto report = executor.run(options.step_seed + i, options.stop);
    if (report.status != run_status::done) break;
    if (i < options.warm_up && !late) continue;  // if the limit has passed, one run counts, warm or not
    if (report.times.size() != plan.size())
      throw bad_argument("the executor noted " + std::to_string(report.times.size()) + " times of " +
                         std::to_string(plan.size()) + " launches; it needs the option `timing`");
    double inside = 0;
    for (std::size_t l = 0; l < plan.size(); ++l) {
      if (plan.launches()[l].is_copy()) continue;  // they run beside the kernels
      const double s = std::chrono::duration<double>(report.times[l].duration).count();
      times.add(plan.launches()[l].operation, s);
      inside += s;
    }
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

/// Options of `profile_and_plan` and `make_planned`.
struct planning_options {
  profile_options profile{};                 ///< how operations are measured
  std::int64_t budget = problem::unlimited;  ///< bytes: for the arena, or for the schedule's peak
  bool arena_within_budget = true;           ///< the budget is the arena's, gaps included; otherwise the peak's
  unsigned attempts = 6;                     ///< the most solves that bring the arena within the budget
  /// Bytes, for the peak of the schedule under which operations are measured. The listed order has the baseline's peak;
  /// if that is more, operations are measured under a schedule that the solver finds with all times equal.
  std::int64_t measuring_budget = problem::unlimited;
  /// The way to the host, in bytes per second, if tensors may be copied there; then the solver must know copies.
  std::optional<host_link> link{};
  std::int64_t host_budget = problem::unlimited;  ///< bytes: for the copies on the host
  std::uint32_t streams = 1;     ///< streams of the executor that is returned; operations are measured on one stream
  memory_plan_options memory{};  ///< options of both arenas
  /// `launch_options::bound_outputs` and `accumulated_outputs` of the executor that is returned; bind them before it
  /// runs. While operations are measured, all outputs lie in the arena, so that nothing is added to the caller's sums.
  std::vector<tensor_id> bound_outputs{};
  std::vector<tensor_id> accumulated_outputs{};  ///< see `bound_outputs`
};

/// A training step that was measured, planned with the measured times, and is ready to run.
template <class Executor>
struct planned_step {
  std::unique_ptr<Executor> executor{};  ///< null if no schedule was found, or none whose arena fits: see `message`
  profile_report measured{};             ///< the times that were measured with the first schedule
  std::optional<problem> instance{};     ///< the problem with the measured times and the budget
  schedule plan{};                       ///< the schedule of the executor; empty without one
  /// The predicted time of a training step: the measured times along the plan, on `streams` streams, with copies at the
  /// link's speeds.
  double predicted_seconds = 0;
  double baseline_seconds = 0;        ///< the time of a training step with nothing recomputed, on one stream
  std::int64_t peak_bytes = 0;        ///< the plan's peak
  std::int64_t arena_bytes = 0;       ///< the plan's arena
  std::int64_t host_arena_bytes = 0;  ///< the arena of its copies on the host
  std::int64_t solved_budget = 0;     ///< the budget of the peak in the solve that found the plan; see `arena_solution`
  unsigned attempts = 0;              ///< solves
  std::string message{};              ///< one line: the solver's, or the reason why there is no executor

  /// True when there is an executor.
  [[nodiscard]] bool ready() const noexcept { return executor != nullptr; }
};

namespace detail {

/// Solves `instance` within the budget of the options. If that is the arena's, the answer has an arena.
[[nodiscard]] inline arena_solution solve_measured(
    const problem& instance, const std::function<solution(const problem&, const run_control&)>& solve,
    const planning_options& options) {
  if (!options.arena_within_budget) {
    arena_solution out{solve(instance, {})};
    out.solves = 1;
    out.solved_budget = options.budget;
    return out;
  }
  const launch_options outputs{.bound_outputs = options.bound_outputs,
                               .accumulated_outputs = options.accumulated_outputs};
  return fit_arena_by(instance, solve,
                      {.budget = options.budget,
                       .elsewhere = outputs.outputs_elsewhere(),
                       .memory = options.memory,
                       .solves = std::max(1U, options.attempts)});
}

/// Measures operations under the listed order, or a schedule within `measuring_budget`. That schedule's executor and
/// arena are destroyed before this returns.
template <sized_graph G, class Make, class Solve>
[[nodiscard]] profile_report measure_operations(const G& graph, Make& make, const Solve& solve,
                                                const planning_options& options) {
  const problem equal_times(graph, unit_cost{});
  schedule first = listed_order(equal_times);
  if (equal_times.graph().baseline_peak > options.measuring_budget) {
    solution found = solve(equal_times.with_budget(options.measuring_budget));
    if (!found.plan)
      throw bad_argument("no schedule to measure operations within " + std::to_string(options.measuring_budget) +
                         " bytes" + (found.message.empty() ? "" : ": " + found.message));
    first = *std::move(found.plan);
  }
  const auto executor = make(launch_plan(graph, equal_times, first, {.memory = options.memory}), true);
  return profile(*executor, options.profile);
}

}  // namespace detail

/// Measures the operations of a training step, plans it with the measured times, and makes the executor of the plan.
///
///  - `make(launch_plan, bool timing)` returns a `std::unique_ptr` to an executor with its tensors bound. With
///  `timing`,
///    the executor must be a `timed_executor`.
///  - `solve(problem)` returns a value with `.plan`, an optional schedule, and `.message`: call any solver in a lambda.
///    With `planning_options::link` the problem has a link to the host, so the solver must know copies (`offload`).
///
/// Operations that the first schedule does not run are needed by no output; their time counts as 0 seconds. If the
/// arena must be within the budget, `solve` gets the problem of the arena, whose sizes are rounded up to the alignment
/// (`arena_problem`). If gaps still make an arena too large, the step is solved again with less memory
/// (`fit_arena_by`). Throws what a `problem`, `plan_memory`, a `launch_plan` and the callables throw; `bad_argument` if
/// the solver finds no schedule within `measuring_budget`.
template <sized_graph G, class Make, class Solve>
requires std::invocable<Make&, launch_plan, bool> && std::invocable<Solve&, const problem&>
[[nodiscard]] auto profile_and_plan(const G& graph, Make&& make, Solve&& solve, const planning_options& options = {}) {
  using executor_type = typename std::invoke_result_t<Make&, launch_plan, bool>::element_type;
  const auto solve_one = [&](const problem& p, const run_control& = {}) {
    auto found = solve(p);
    solution out;
    if constexpr (std::is_convertible_v<decltype(found), solution>) {
      out = std::move(found);
    } else {
      if (found.plan) out.status = solve_status::feasible;
      out.plan = std::move(found.plan);
      out.message = std::string(found.message);
    }
    return out;
  };
  planned_step<executor_type> out;
  out.measured = detail::measure_operations(graph, make, solve_one, options);
  if (out.measured.runs == 0) {
    out.message = "measuring was cancelled before a run had ended";
    return out;
  }
  out.instance.emplace(graph, out.measured.times.filled(graph, callable_cost{[](op_id) { return 0.0; }}),
                       options.budget);
  if (options.link) out.instance = out.instance->with_link(*options.link, options.host_budget);
  // An operation that adds to a sum over training steps must run once.
  out.instance = out.instance->producing_once(options.accumulated_outputs);
  out.baseline_seconds = out.instance->graph().baseline_time;
  arena_solution found = detail::solve_measured(*out.instance, solve_one, options);
  out.attempts = found.solves;
  out.solved_budget = found.solved_budget;
  out.message = found.plan || !found.message.empty() ? std::move(found.message) : "the solver found no schedule";
  if (!found.plan) return out;
  out.plan = *std::move(found.plan);
  const launch_options launching{.streams = options.streams,
                                 .memory = options.memory,
                                 .bound_outputs = options.bound_outputs,
                                 .accumulated_outputs = options.accumulated_outputs};
  // If the arena is within the budget, the peak need not be: it counts the outputs in the caller's memory, too.
  const problem unlimited = out.instance->with_budget(problem::unlimited);
  launch_plan launches = found.memory ? launch_plan(graph, unlimited, out.plan.steps, *found.memory, launching)
                                      : launch_plan(graph, *out.instance, out.plan, launching);
  out.arena_bytes = launches.arena_bytes();
  out.host_arena_bytes = launches.host_arena_bytes();
  out.peak_bytes = launches.peak_bytes();
  out.predicted_seconds = launches.assignment().makespan;
  out.executor = make(std::move(launches), false);
  return out;
}

/// Memory of a tensor that is always resident.
struct tensor_binding {
  tensor_id tensor{};                   ///< the tensor that is bound
  std::span<const std::byte> memory{};  ///< its bytes, which must outlive the executor
};

/// `profile_and_plan` on the host, with the user's kernels and the memory of parameters and inputs.
///
/// `host` is for the executor that is returned. The executor that measures always notes times, never watches the
/// kernels (`debug`, `check_inputs`), and takes memory from `host.memory` if the given arena is too small for it. The
/// kernels are copied for it; to share them, give a reference (`std::ref`).
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

}  // namespace REMAT_NAMESPACE
