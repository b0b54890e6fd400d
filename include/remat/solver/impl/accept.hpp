// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/solver/accept.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/detail/solve_end.hpp"

namespace remat {

REMAT_INLINE bool keep_if_better(solution& best, schedule plan, const check_report& report, std::string_view by) {
  if (best.plan && (report.time > best.time || (report.time == best.time && report.peak_bytes >= best.peak_bytes)))
    return false;
  best.plan = std::move(plan);
  best.by = by;
  best.peak_bytes = report.peak_bytes;
  best.time = report.time;
  best.statistics.computes = report.computes;
  best.statistics.recomputes = report.recomputes;
  best.status = solve_status::feasible;
  return true;
}

REMAT_INLINE acceptance accept(const problem& p, solution& best, schedule plan, std::string_view by) {
  acceptance result;
  result.report = check(p, plan);
  if (result.report.what == violation::over_budget) return result;
  if (!result.report.valid()) throw internal_error("a solver made an invalid schedule: " + result.report.message());
  result.taken = keep_if_better(best, std::move(plan), result.report, by);
  return result;
}

REMAT_INLINE bool prove(const problem& p, solution& s, const run_control& run) {
  if (!s.proven && s.plan && is_optimal(s.time, p.graph().needed_time)) {
    s.proven = true;  // the needed time is a bound, and it is met
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

REMAT_INLINE bool settled_by_listed_order(const problem& p, solution& best, std::string_view solver) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t o = 0; o < p.graph().num_operations; ++o)
    if (p.graph().needed[o]) order.push_back(o);
  if (accept(p, best, schedule_computes(p.graph(), order),
             solver == "no_remat" ? std::string(solver) : by_part(solver, "no_remat"))) {
    best.lower_bound = p.graph().needed_time;
    best.proven = true;
    return true;
  }
  const least_memory_result least = largest_working_set(p);
  if (least.bytes <= p.budget()) return false;
  best.status = solve_status::infeasible;
  best.lower_bound = std::numeric_limits<double>::infinity();
  best.proven = true;
  best.obstacle = least.operation;
  best.message = least.message();
  return true;
}

REMAT_INLINE void conclude(const problem& p, solution& s, const run_clock& clock, stop_reason stopped) {
  constexpr std::chrono::milliseconds time_for_bound(50);
  run_control proving = clock.control();
  proving.time_limit = std::max<std::chrono::nanoseconds>(clock.left(), time_for_bound);
  prove(p, s, proving);
  detail::solve_end::record(s, clock, stopped, "the heuristic found no schedule; that is no proof that there is none");
}

}  // namespace remat
