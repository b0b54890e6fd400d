// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "remat/bound/turnaround.hpp"
#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/core/rounding.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

/// Makes `plan` the answer of `best` where it is better: less time than what `best` holds or, for equal time, a lower
/// peak. Returns whether it did. `report` is the exact checker's report of `plan`, and valid.
inline bool keep_if_better(solution& best, schedule plan, const check_report& report) {
  if (best.plan && (report.time > best.time || (report.time == best.time && report.peak_bytes >= best.peak_bytes)))
    return false;
  best.plan = std::move(plan);
  best.peak_bytes = report.peak_bytes;
  best.time = report.time;
  best.statistics.computes = report.computes;
  best.statistics.recomputes = report.recomputes;
  best.status = solve_status::feasible;
  return true;
}

/// What `accept` did with a schedule.
struct acceptance {
  bool taken = false;     ///< the schedule is the answer now
  check_report report{};  ///< of the exact checker

  constexpr operator bool() const noexcept { return taken; }  // NOLINT: read as the answer to "was it taken?"
};

/// The only way from a solver's steps to a solution: through the exact checker, once.
///
/// `plan` is taken where it is legal, within the budget of `p`, and better than what `best` holds (`keep_if_better`).
/// A schedule over the budget is refused. Throws `internal_error` for an illegal schedule: the solver has a defect.
/// O(steps + their reads and writes).
inline acceptance accept(const problem& p, solution& best, schedule plan) {
  acceptance result;
  result.report = check(p, plan);
  if (result.report.what == violation::over_budget) return result;
  if (!result.report.valid()) throw internal_error("a solver made an invalid schedule: " + result.report.message());
  result.taken = keep_if_better(best, std::move(plan), result.report);
  return result;
}

/// Gives `s` a proven lower bound: what is known of the problem, else the turnaround bound. Where that proves that no
/// schedule is within the budget, `s` says `infeasible` and why. Returns whether it does.
/// Costs some flows on the step's graph; once it has been called for `s`, nothing.
inline bool prove(const problem& p, solution& s, const run_control& run = {}) {
  if (!s.proven && s.plan && is_optimal(s.time, p.graph().needed_time)) {
    s.proven = true;  // no bound can say more
    s.lower_bound = std::max(s.lower_bound, p.graph().needed_time);
  }
  if (!s.proven) {
    s.proven = true;
    double bound = p.graph().needed_time;
    if (p.known_bound()) {
      bound = std::max(bound, *p.known_bound());
      if (!std::isfinite(bound)) s.message = "proven: no schedule fits the budget";
    } else if (p.has_budget() && p.budget() < p.graph().baseline_peak) {
      turnaround_options options;
      options.want_saved = false;
      options.run.stop = run.stop;
      options.run.time_limit = run.time_limit;
      const turnaround_result r = turnaround_bound(p, options);
      bound = std::max(bound, r.lower_bound);
      if (r.infeasible) {
        s.message = r.least_memory.message();
        s.obstacle = r.least_memory.operation;
      }
    }
    s.lower_bound = std::max(s.lower_bound, bound);
  }
  if (std::isfinite(s.lower_bound)) return false;
  s.status = solve_status::infeasible;
  return true;
}

/// Ends a solve: proves the lower bound, if that has not been done (`prove`), and sets the status: `optimal` where the
/// time meets the bound, otherwise how the solve ended (`stopped`).
///
/// A solver whose time is spent still gets `time_for_bound` for the bound. A stop request ends the proof at once; the
/// bound is then weaker, but still proven. Throws `internal_error` for a schedule that is faster than the bound.
inline void conclude(const problem& p, solution& s, const run_clock& clock, stop_reason stopped) {
  constexpr std::chrono::milliseconds time_for_bound(50);
  run_control proving = clock.part(1);
  proving.time_limit = std::max<std::chrono::nanoseconds>(proving.time_limit, time_for_bound);
  prove(p, s, proving);
  s.statistics.seconds = clock.seconds();
  s.statistics.work = clock.work_done();
  if (s.plan) {
    // The bound sums the same times in another order: equal up to rounding.
    if (s.time < s.lower_bound * (1 - 1e-9)) throw internal_error("a schedule takes less time than its proven bound");
    s.status = is_optimal(s.time, s.lower_bound) ? solve_status::optimal : solve_status::feasible;
  } else if (s.status != solve_status::infeasible && s.status != solve_status::error) {
    s.status = stopped == stop_reason::cancelled ? solve_status::cancelled : solve_status::timeout;
    if (s.message.empty() && stopped == stop_reason::none)
      s.message = "the heuristic found no schedule; that is no proof that there is none";
  }
}

}  // namespace remat
