// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/execute/profile.hpp"

#include "remat/core/detail/linkage.hpp"

namespace remat {

REMAT_INLINE double summarize(std::span<double> times, time_statistic statistic) {
  if (times.empty()) return std::numeric_limits<double>::quiet_NaN();
  if (statistic == time_statistic::least) return *std::min_element(times.begin(), times.end());
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return times.size() % 2 == 1 ? *middle : (*std::max_element(times.begin(), middle) + *middle) / 2;
}

REMAT_INLINE void launch_times::add(op_id o, double seconds) {
  if (index(o) >= of_.size())
    throw bad_argument("there is no operation " + std::to_string(index(o)) + "; there are " +
                       std::to_string(of_.size()));
  if (!(seconds >= 0) || !std::isfinite(seconds))
    throw bad_cost("operation " + std::to_string(index(o)) + " took " + std::to_string(seconds) +
                   " seconds; a time must be finite and not negative");
  of_[index(o)].push_back(seconds);
}

REMAT_INLINE measured_times launch_times::summary(time_statistic statistic) const {
  measured_times out;
  std::vector<double> times;
  for (const std::vector<double>& all : of_) {
    times = all;
    out.seconds.push_back(summarize(times, statistic));
  }
  return out;
}

REMAT_INLINE arena_solution detail::solve_measured(
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

}  // namespace remat
