// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "outcome.hpp"
#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/core/rounding.hpp"
#include "remat/io/intervals_csv.hpp"
#include "remat/memory/check.hpp"
#include "remat/memory/plan.hpp"
#include "remat/problem/problem.hpp"
#include "remat/render/units.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/solver/frontier.hpp"
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

/// One solve within a budget for the arena: the program's part of `remat::fit_budget`.
class arena_solve {
 public:
  arena_solve(const named_solver& solver, const remat::problem& p, std::int64_t budget, const remat::run_control& run)
      : solver_(solver), problem_(p), budget_(budget), run_(run), clock_(run) {}

  [[nodiscard]] outcome solve(std::int64_t least_peak) {
    const remat::fit_result fit = remat::fit_budget(
        budget_, least_peak, {.solves = 5, .run = run_},
        [&](std::int64_t peak_budget, const remat::run_control& part) { return attempt(peak_budget, part); });
    if (!first_ && last_) return *std::move(last_);  // the first solve found no schedule
    return fit.fits ? fitting(fit) : not_fitting(fit);
  }

 private:
  std::optional<remat::measured_bytes> attempt(std::int64_t peak_budget, const remat::run_control& part) {
    last_ = solver_.solve(peak_budget, part);
    seconds_ += last_->seconds;
    if (!last_->plan) return std::nullopt;
    remat::memory_plan_options planning;
    planning.enough = budget_;
    planning.run.stop = run_.stop;
    planning.run.seed = run_.seed;
    // With a limit of its own it does not stop at an arena that is near enough to the peak.
    if (run_.time_limit == std::chrono::nanoseconds::max())
      planning.run.work_limit = 20 * remat::memory_plan_options::default_work;
    else
      planning.run.time_limit = std::clamp<std::chrono::nanoseconds>(clock_.left() / 2, std::chrono::milliseconds(50),
                                                                     std::chrono::seconds(2));
    plan_arena(problem_, *last_, planning);
    if (!first_) first_ = last_;
    const std::int64_t arena = last_->memory->arena_bytes;
    smallest_ = std::min(smallest_, arena);
    return remat::measured_bytes{*last_->peak, arena};
  }

  [[nodiscard]] outcome fitting(const remat::fit_result& fit) {
    outcome out = *std::move(last_);
    out.binds_arena = true;
    out.lower_bound = first_->lower_bound;
    const bool met = out.lower_bound && remat::is_optimal(*out.time, *out.lower_bound);
    out.status = met ? remat::solve_status::optimal : remat::solve_status::feasible;
    out.seconds = seconds_;
    if (fit.solves > 1)
      out.message = "a schedule for a peak of " + remat::format_bytes(fit.peak_budget) + ", " +
                    std::to_string(fit.solves) + " solves: the arenas of larger peaks were too large";
    return out;
  }

  [[nodiscard]] outcome not_fitting(const remat::fit_result& fit) const {
    outcome none;
    none.status = run_.stop.stop_requested() ? remat::solve_status::cancelled : remat::solve_status::timeout;
    if (first_) none.lower_bound = first_->lower_bound;
    none.binds_arena = true;
    none.seconds = seconds_;
    none.message = "found no schedule whose arena fits, in " + std::to_string(fit.solves) +
                   " solves; the smallest arena was " + remat::format_bytes(first_ ? smallest_ : 0);
    return none;
  }

  const named_solver& solver_;
  const remat::problem& problem_;
  const std::int64_t budget_;
  const remat::run_control& run_;
  const remat::run_clock clock_;
  std::optional<outcome> first_{};  ///< the first with a schedule
  std::optional<outcome> last_{};
  std::int64_t smallest_ = std::numeric_limits<std::int64_t>::max();  ///< arena, bytes
  double seconds_ = 0;
};

/// `solver` with the budget as one for the arena: only schedules whose arena fits count.
///
/// Bounds and proofs of infeasibility are those of the first solve, within a peak of the whole budget: an arena is
/// never smaller than its peak.
[[nodiscard]] inline named_solver binding_arena(const named_solver& solver, const remat::problem& p,
                                                std::int64_t least_peak) {
  const auto solve = [solver, p, least_peak](std::int64_t budget, const remat::run_control& run) {
    return arena_solve(solver, p, budget, run).solve(least_peak);
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
