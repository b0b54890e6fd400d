// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "outcome.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/execute/fit_arena.hpp"
#include "remat/io/text.hpp"
#include "remat/memory/check.hpp"
#include "remat/memory/plan.hpp"
#include "remat/problem/problem.hpp"
#include "remat/render/table.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/solution.hpp"
#include "search.hpp"
#include "solvers.hpp"

namespace remat_plan {

/// A plan of `intervals` that has passed the check.
[[nodiscard]] inline remat::memory_plan checked_plan(const std::vector<remat::interval>& intervals,
                                                     const remat::memory_plan_options& options) {
  remat::memory_plan plan = remat::plan_memory(intervals, options);
  const remat::memory_check_report report =
      remat::check_memory(intervals, plan.offsets, plan.arena_bytes, options.alignment);
  if (!report.valid()) throw remat::internal_error("memory plan: " + report.message());
  return plan;
}

/// Plans the arena of an outcome's schedule, unless it has one; with a link, also that of its
/// copies on the host.
inline void plan_arena(const remat::problem& p, outcome& o, const remat::memory_plan_options& options) {
  const remat::lifetimes lives = remat::lifetimes_of(p.with_budget(remat::problem::unlimited), *o.plan);
  if (!o.memory) o.memory = checked_plan(remat::intervals_of(lives), options);
  if (p.link()) o.host_memory = checked_plan(remat::host_intervals_of(lives), options);
}

/// The arena of the baseline: the listed order's, planned without limits.
[[nodiscard]] inline remat::memory_plan baseline_arena(const remat::problem& p, std::int64_t alignment) {
  const remat::problem unlimited = p.with_budget(remat::problem::unlimited);
  return remat::plan_memory(remat::lifetimes_of(unlimited, remat::listed_order(unlimited)), {.alignment = alignment});
}

/// `solver` with the budget as one for the arena (`remat::fit_arena_by`): only schedules whose arena fits count.
[[nodiscard]] inline named_solver binding_arena(const named_solver& solver, const remat::problem& p,
                                                std::int64_t alignment) {
  const auto solve = [solver, p, alignment](std::int64_t budget, const remat::run_control& run) {
    double seconds = 0;  // of solving, without the memory plans
    const auto part = [&](const remat::problem& rounded, const remat::run_control& control) {
      remat::solution s = solver.solve_problem(rounded, control);
      seconds += s.statistics.seconds;
      return s;
    };
    remat::fit_arena_options options;
    options.budget = budget;
    options.memory.alignment = alignment;
    options.run = run;
    remat::arena_solution fit = remat::fit_arena_by(p, part, options);
    std::optional<remat::memory_plan> memory = std::move(fit.memory);
    outcome out = to_outcome(static_cast<remat::solution&&>(fit));
    out.memory = std::move(memory);
    out.binds_arena = true;
    out.seconds = seconds;
    if (out.memory && fit.solved_budget < budget / out.memory->alignment * out.memory->alignment)
      out.message = "a schedule for a peak of " + remat::detail::count_of(fit.solved_budget, "byte") + ", in " +
                    remat::detail::count_of(fit.solves, "solve") + ": the arenas of larger peaks were too large";
    return out;
  };
  return {solver.name, solve, {}, solver.carries_over, true, solver.is_in_all};
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
