// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "remat/bound/turnaround.hpp"
#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

/// The only way from a solver's steps to a solution: through the exact checker.
///
/// Returns whether `plan` was taken: it must be legal and within the budget, and faster than what `best` holds (of
/// equal time: lower peak). An illegal plan is a defect of the solver and throws `internal_error`; one that is over the
/// budget is refused.
inline bool accept(const problem& p, solution& best, schedule plan) {
  const check_report report = check(p, plan);
  if (report.what == violation::over_budget) return false;
  if (!report.valid()) throw internal_error("a solver made an invalid schedule: " + report.message());
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

/// Gives `s` a proven lower bound: what is known of the problem, else the turnaround bound. Where that proves that no
/// schedule is within the budget, `s` says `infeasible` and why. Returns whether it does.
/// Costs some flows on the step's graph; once it has been called for `s`, nothing.
inline bool prove(const problem& p, solution& s, const run_control& run = {}) {
  if (!s.proven && s.plan && s.time <= p.graph().needed_time * (1 + 1e-12)) {
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

/// Fills in how a solve ended: the proven lower bound, `optimal` where the time meets it, else why it stopped.
inline void conclude(const problem& p, solution& s, const run_clock& clock, stop_reason stopped) {
  // A solver that comes here without a bound has used its time for the schedule: a little more is for the bound.
  prove(p, s, {.time_limit = std::max<std::chrono::nanoseconds>(clock.left(), std::chrono::milliseconds(50))});
  s.statistics.seconds = clock.seconds();
  s.statistics.work = clock.work_done();
  if (s.plan) {
    // The bound sums the same times in another order: equal up to rounding.
    if (s.time < s.lower_bound * (1 - 1e-9)) throw internal_error("a schedule takes less time than its proven bound");
    const bool meets = s.time <= s.lower_bound * (1 + 1e-12);
    s.status = meets ? solve_status::optimal : solve_status::feasible;
  } else if (s.status != solve_status::infeasible && s.status != solve_status::error) {
    s.status = stopped == stop_reason::cancelled ? solve_status::cancelled : solve_status::timeout;
    if (s.message.empty() && stopped == stop_reason::none)
      s.message = "the heuristic found no schedule; that is no proof that there is none";
  }
}

}  // namespace remat
