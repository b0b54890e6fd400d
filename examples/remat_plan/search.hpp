// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <new>
#include <numeric>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "outcome.hpp"
#include "progress_line.hpp"
#include "remat/core/control.hpp"
#include "remat/solver/frontier.hpp"

namespace remat_plan {

/// One solver on the file at hand: solves for a budget.
struct named_solver {
  std::string name{};
  std::function<outcome(std::int64_t budget, const remat::run_control& run)> solve{};
  /// A schedule for one budget may answer for a larger one: the frontier is then monotone.
  bool carries_over = true;
  bool binds_arena = false;  ///< the budget is one for the arena
};

/// What every solve of the program shares.
struct solving {
  const subject* what = nullptr;
  remat::run_control run{};  ///< of each solve; its token is that of Ctrl-C
  progress_line* line = nullptr;
};

/// One solve with everything that can happen to it: it is not begun when a stop was requested or the budget is below
/// the proven least peak, and an exception, memory that runs out included, is an outcome of status `error`.
[[nodiscard]] inline outcome guarded(const subject& what, const named_solver& solver, std::int64_t budget,
                                     const remat::run_control& run) {
  outcome out;
  out.solver = solver.name;
  out.budget = budget;
  out.lower_bound = what.least_time;
  out.status = remat::solve_status::cancelled;
  if (run.stop.stop_requested()) {
    out.message = "not begun";
    return out;
  }
  if (budget < what.least_peak) {
    out.status = remat::solve_status::infeasible;
    out.lower_bound.reset();
    out.message = what.least_peak_reason;
    return out;
  }
  out.status = remat::solve_status::error;
  const remat::run_clock clock(run);
  try {
    out = solver.solve(budget, run);
    out.solver = solver.name;
    out.budget = budget;
  } catch (const std::bad_alloc&) {
    out.message = "out of memory";
    out.seconds = clock.seconds();
  } catch (const std::exception& e) {
    out.message = e.what();
    out.seconds = clock.seconds();
  }
  return out;
}

/// Solves for each budget, the smallest first, and returns the outcomes in the order of `budgets`.
///
/// A schedule for a smaller budget that is faster than the one found for a larger takes its place.
[[nodiscard]] inline std::vector<outcome> solve_budgets(const solving& common, const named_solver& solver,
                                                        const std::vector<std::int64_t>& budgets) {
  std::vector<std::size_t> order(budgets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return budgets[a] < budgets[b]; });
  std::vector<outcome> out(budgets.size());
  const outcome* before = nullptr;  // the fastest for a smaller budget
  for (std::size_t k = 0; k < order.size(); ++k) {
    outcome& now = out[order[k]];
    const std::int64_t budget = budgets[order[k]];
    if (k != 0 && budget == budgets[order[k - 1]]) {
      now = out[order[k - 1]];
      continue;
    }
    std::string text = solver.name + " within " + remat::format_bytes(budget);
    if (budgets.size() > 1) text += " (" + std::to_string(k + 1) + " of " + std::to_string(budgets.size()) + ")";
    common.line->begin(std::move(text), common.run.time_limit);
    remat::run_control run = common.run;
    run.on_progress = [&](const remat::progress& p) { common.line->update(p); };
    now = guarded(*common.what, solver, budget, run);
    common.line->finish();
    if (solver.carries_over && before != nullptr && (!now.time || *before->time < *now.time)) {
      now.peak = before->peak;
      now.time = before->time;
      now.plan = before->plan;
      now.memory = before->memory;
      now.binds_arena = before->binds_arena;
      now.recomputes = before->recomputes;
      now.status = remat::solve_status::feasible;
      now.message = "the schedule for " + remat::format_bytes(before->budget) + ", the best found";
    }
    if (now.time && (before == nullptr || *now.time <= *before->time)) before = &now;
  }
  return out;
}

/// The dual question: the least peak (or arena, where solvers bind that) whose time is at most (1 + `most`) × the
/// baseline's, by bisection over budgets.
///
/// Every probe is a solve; it ends as soon as it has a schedule that is fast enough. Solvers are heuristic, so the
/// least peak found is proven only where it meets the problem's own least. All probes together take one solve's time
/// limit; under a limit of work, each of them takes a sixteenth of that.
[[nodiscard]] inline outcome solve_for_memory(const solving& common, const named_solver& solver, double most) {
  const subject& what = *common.what;
  const double limit = what.baseline_time * (1 + most) * (1 + 1e-12);
  const bool counted = common.run.work_limit != remat::run_control::no_work_limit;
  remat::trade_off_options options;
  options.probes = counted ? 16 : 64;
  options.run = common.run;
  const remat::run_clock clock(common.run);
  common.line->begin(solver.name + ", least memory for " + remat::format_percent(most) + " overhead",
                     common.run.time_limit);

  std::optional<outcome> best;
  outcome last;
  const auto probe = [&](std::int64_t budget, remat::run_control& run,
                         std::stop_source& enough) -> std::optional<std::int64_t> {
    if (!counted)
      run.on_progress = [&](const remat::progress& p) {
        common.line->update(p);
        if (p.best_objective <= limit && !solver.binds_arena) enough.request_stop();  // its arena may not fit
      };
    last = guarded(what, solver, budget, run);
    if (!last.time || *last.time > limit) return std::nullopt;
    if (!best || last.bound_bytes() < best->bound_bytes()) best = last;
    return last.bound_bytes();
  };
  std::int64_t high = what.baseline_peak;
  if (solver.binds_arena) high += high / 50 + (1 << 16);  // rounding and fragmentation
  remat::bisect_budgets(what.least_peak, high, options, clock, probe);
  common.line->finish();

  outcome out = best ? *std::move(best) : outcome{};
  out.solver = solver.name;
  out.seconds = clock.seconds();
  if (out.time) {
    out.budget = out.bound_bytes();
    out.status = out.budget <= what.least_peak ? remat::solve_status::optimal : remat::solve_status::feasible;
    out.message = std::string("the least ") + (out.binds_arena ? "arena" : "peak") + " found for at most " +
                  remat::format_percent(most, 2) + " overhead";
  } else {
    out.budget = what.baseline_peak;
    out.lower_bound = last.lower_bound;
    const bool failed = last.status == remat::solve_status::error;
    out.status = failed                             ? last.status
                 : common.run.stop.stop_requested() ? remat::solve_status::cancelled
                                                    : remat::solve_status::timeout;
    out.message = failed ? last.message
                         : "found no schedule of at most " + remat::format_percent(most, 2) +
                               " overhead, even within the baseline's peak";
  }
  return out;
}

}  // namespace remat_plan
