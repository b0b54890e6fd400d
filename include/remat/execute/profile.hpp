// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/cost/concepts.hpp"
#include "remat/execute/detail/launch_calls.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/graph/concepts.hpp"

namespace remat {

namespace detail::profiling {

[[noreturn]] void refuse_unmeasured(op_id o, std::string_view name);
[[noreturn]] void refuse_missing_times(std::size_t times, std::size_t launches);
[[noreturn]] void refuse_no_runs();

}  // namespace detail::profiling

/// The measured times of operations. Model of `cost_model`.
struct measured_times {
  std::vector<double> seconds{};  ///< of each operation; NaN: not measured

  /// True if every operation was measured.
  [[nodiscard]] bool complete() const noexcept {
    return std::none_of(seconds.begin(), seconds.end(), [](double s) { return std::isnan(s); });
  }

  /// The measured time of operation `o` in seconds. Throws `bad_cost` that names the operation if it was not measured.
  template <data_flow_graph G>
  [[nodiscard]] double time(const G& g, op_id o) const {
    if (index(o) < seconds.size() && !std::isnan(seconds[index(o)])) return seconds[index(o)];
    if constexpr (named_graph<G>)
      detail::profiling::refuse_unmeasured(o, std::string_view(g.name(o)));
    else
      detail::profiling::refuse_unmeasured(o, {});
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
  median,  ///< of an even number, the mean of the two in the middle
  least    ///< the least of them
};

/// The statistic of some times; NaN if there are none. Reorders the times. O(n) time.
[[nodiscard]] double summarize(std::span<double> times, time_statistic statistic);

/// Times of launches, gathered over any number of runs, of any executor and any schedules of one graph.
class launch_times {
 public:
  /// No times yet, of a graph with so many operations.
  explicit launch_times(std::size_t num_operations) : of_(num_operations) {}

  /// Adds one time of operation `o`. Throws `bad_argument` if the graph has no operation `o`, `bad_cost` if `seconds`
  /// is negative or not finite.
  void add(op_id o, double seconds);
  /// Adds one run of a plan. `seconds_of(i)` is the time of launch i.
  template <std::invocable<std::size_t> F>
  void add_run(const launch_plan& plan, F&& seconds_of) {
    for (std::size_t i = 0; i < plan.size(); ++i) add(plan.launches()[i].operation, static_cast<double>(seconds_of(i)));
  }

  /// All times of operation `o`.
  [[nodiscard]] std::span<const double> of(op_id o) const noexcept { return of_[index(o)]; }
  /// The statistic of each operation's times.
  [[nodiscard]] measured_times summary(time_statistic statistic = time_statistic::median) const;

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
  unsigned runs = 7;     ///< that count, at least 1
  std::chrono::nanoseconds time_limit = std::chrono::nanoseconds::max();  ///< wall clock; no run begins after it
  time_statistic statistic = time_statistic::median;  ///< what stands for the several times of an operation
  std::uint64_t step_seed = 0;                        ///< of the first run; each run has the next seed
  std::stop_token stop{};  ///< given to each run; a run that it cancels is the last one and does not count
};

/// The measured times of one schedule.
struct profile_report {
  measured_times times{};  ///< NaN for operations that the schedule does not run
  double step_seconds = std::numeric_limits<double>::quiet_NaN();     ///< wall clock of a run, by the same statistic
  double outside_seconds = std::numeric_limits<double>::quiet_NaN();  ///< of a run, spent outside of the kernels
  unsigned runs = 0;  ///< that counted: fewer than the options ask for if the limit passed or a run was cancelled
};

/// Runs the executor's training step several times, and takes the median (or the least) time of each operation.
///
/// If the schedule runs an operation several times, all its runs count. At least one run counts, unless it is
/// cancelled. Times of several streams add up: profile on one stream. Throws `bad_argument` if `runs` is 0 or the
/// executor notes no times, and what the executor throws.
template <timed_executor E>
[[nodiscard]] profile_report profile(E& executor, const profile_options& options = {}) {
  if (options.runs == 0) detail::profiling::refuse_no_runs();
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
    if (report.times.size() != plan.size()) detail::profiling::refuse_missing_times(report.times.size(), plan.size());
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

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/execute/impl/profile.hpp"
#endif
