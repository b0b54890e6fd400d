// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "outcome.hpp"
#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/io/intervals_csv.hpp"
#include "remat/memory/check.hpp"
#include "remat/memory/plan.hpp"
#include "remat/problem/problem.hpp"
#include "remat/render/units.hpp"
#include "remat/schedule/lifetime.hpp"
#include "search.hpp"

namespace remat_plan {

/// Plans the arena of an outcome's schedule, at the default alignment, and checks the plan.
inline void plan_arena(const remat::problem& p, outcome& o, const remat::memory_plan_options& options) {
  const remat::lifetimes lives = remat::lifetimes_of(p.with_budget(remat::problem::unlimited), *o.plan);
  o.memory = remat::plan_memory(lives, options);
  const remat::memory_check_report report =
      remat::check_memory(remat::intervals_of(lives), o.memory->offsets, o.memory->arena_bytes, options.alignment);
  if (!report.valid()) throw remat::internal_error("memory plan: " + report.message());
}

/// `solver`, whose schedules count where their arena fits the budget.
///
/// The first solve, which gets three quarters of the time, is within a peak of the whole budget. While the arena of
/// what it finds is too large, the next is within a peak that is smaller by what was too much, and gets half of the
/// time that is left; of a limit of work the first gets half, and each other one an eighth. Bounds and proofs of
/// infeasibility are those of the first: an arena is never smaller than its peak.
[[nodiscard]] inline named_solver binding_arena(const named_solver& solver, const remat::problem& p,
                                                std::int64_t least_peak) {
  constexpr int most_solves = 5;
  const auto solve = [solver, p, least_peak](std::int64_t budget, const remat::run_control& run) {
    const bool timed = run.time_limit != std::chrono::nanoseconds::max();
    const bool counted = run.work_limit != remat::run_control::no_work_limit;
    const remat::run_clock clock(run);
    std::optional<outcome> first;
    std::optional<std::int64_t> smallest;  // arena that was too large
    double seconds = 0;
    std::int64_t peak_limit = budget;
    int solves = 0;
    for (; solves < most_solves && peak_limit >= least_peak; ++solves) {
      if (solves != 0 && clock.should_stop()) break;
      remat::run_control part = run;
      if (timed)
        part.time_limit =
            std::max(std::chrono::nanoseconds(0), run.time_limit - clock.elapsed()) / 4 * (solves == 0 ? 3 : 2);
      if (counted) part.work_limit = std::max<std::uint64_t>(1, run.work_limit / (solves == 0 ? 2 : 8));
      outcome now = solver.solve(peak_limit, part);
      seconds += now.seconds;
      if (!now.plan) {
        if (solves == 0) return now;
        peak_limit = (peak_limit + least_peak) / 2 == peak_limit ? least_peak - 1 : (peak_limit + least_peak) / 2;
        continue;
      }
      remat::memory_plan_options planning;
      planning.enough = budget;
      planning.run.stop = run.stop;
      planning.run.seed = run.seed;
      // With a limit of its own it does not stop at an arena that is near enough to the peak.
      if (!timed) planning.run.work_limit = 20 * remat::memory_plan_options::default_work;
      if (timed)
        planning.run.time_limit = std::clamp<std::chrono::nanoseconds>(
            (run.time_limit - clock.elapsed()) / 2, std::chrono::milliseconds(50), std::chrono::seconds(2));
      plan_arena(p, now, planning);
      if (!first) first = now;
      const std::int64_t arena = now.memory->arena_bytes;
      if (arena <= budget) {
        now.binds_arena = true;
        now.lower_bound = first->lower_bound;
        const bool met = now.lower_bound && *now.time <= *now.lower_bound * (1 + 1e-12);
        now.status = met ? remat::solve_status::optimal : remat::solve_status::feasible;
        now.seconds = seconds;
        if (solves != 0)
          now.message = "a schedule for a peak of " + remat::format_bytes(peak_limit) + ", " +
                        std::to_string(solves + 1) + " solves: the arenas of larger peaks were too large";
        return now;
      }
      smallest = smallest ? std::min(*smallest, arena) : arena;
      const std::int64_t less = std::min(peak_limit, *now.peak) - (arena - budget);
      if (peak_limit == least_peak) break;
      peak_limit = std::max(less, least_peak);
    }
    outcome none;
    none.status = run.stop.stop_requested() ? remat::solve_status::cancelled : remat::solve_status::timeout;
    if (first) none.lower_bound = first->lower_bound;
    none.binds_arena = true;
    none.seconds = seconds;
    none.message = "found no schedule whose arena fits, in " + std::to_string(solves) +
                   " solves; the smallest arena was " + remat::format_bytes(smallest.value_or(0));
    return none;
  };
  return {solver.name, solve, solver.carries_over, true};
}

/// The lifetimes of an outcome's schedule, with the offsets in its arena. Names are those of the tensors: t3, and t3#2
/// the second time; workspaces are w and the step.
[[nodiscard]] inline remat::intervals_file to_intervals(const remat::problem& p, const outcome& o) {
  const remat::lifetimes lives = remat::lifetimes_of(p.with_budget(remat::problem::unlimited), *o.plan);
  remat::intervals_file file;
  file.intervals = remat::intervals_of(lives);
  file.offsets = o.memory->offsets;
  std::vector<std::uint32_t> times(p.graph().num_tensors, 0);
  for (const remat::allocation& a : lives.allocations) {
    if (a.is_workspace()) {
      file.ids.push_back("w" + std::to_string(a.first));
      continue;
    }
    const std::uint32_t time = ++times[a.tensor];
    file.ids.push_back("t" + std::to_string(a.tensor) + (time == 1 ? "" : "#" + std::to_string(time)));
  }
  return file;
}

}  // namespace remat_plan
