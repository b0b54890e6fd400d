// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "outcome.hpp"
#include "progress_line.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/frontier.hpp"
#include "remat/solver/solution.hpp"

namespace remat_plan {

/// A solver applied to the input file.
struct named_solver {
  std::string name{};
  std::function<outcome(std::int64_t budget, const remat::run_control& run)> solve{};
  /// The same for a problem with its budget; for a chain, none.
  std::function<remat::solution(const remat::problem& p, const remat::run_control& run)> solve_problem{};
  /// A faster schedule for a smaller budget answers for a larger one, too: the frontier is then monotone.
  bool carries_over = true;
  bool binds_arena = false;  ///< the budget binds the arena, not the peak
  bool is_in_all = true;     ///< `--solver all` runs it, too
};

/// What all solves of the program have in common.
struct solving {
  const subject* what = nullptr;
  remat::run_control run{};  ///< of each solve; its token is that of Ctrl-C
  progress_line* line = nullptr;
};

/// One solve, with all its ways to fail. It is not begun after a stop request, or for a budget below the proven
/// least. An exception, out of memory included, becomes an outcome with the status `error`.
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
  if (budget < what.least_bytes) {
    out.status = remat::solve_status::infeasible;
    out.lower_bound.reset();
    out.message = what.least_reason;
    return out;
  }
  out.status = remat::solve_status::error;
  const remat::run_clock clock(run);
  try {
    out = solver.solve(budget, run);
    out.solver = solver.name;
    out.budget = budget;
    out.say(what.remark);
  } catch (const std::bad_alloc&) {
    out.message = "out of memory";
    out.seconds = clock.seconds();
  } catch (const std::exception& e) {
    out.message = e.what();
    out.seconds = clock.seconds();
  }
  return out;
}

/// Lets a faster schedule for a smaller budget answer for a larger one, too, if the solver carries over.
inline void carry_over_budgets(const named_solver& solver, const std::vector<std::int64_t>& budgets,
                               std::vector<outcome>& answers) {
  const auto is_better = [&](const outcome& before, const outcome& now) {
    return solver.carries_over && before.time && (!now.time || *before.time < *now.time);
  };
  const auto carry_over = [](const outcome& before, outcome& now) {
    now.peak = before.peak;
    now.time = before.time;
    now.plan = before.plan;
    now.memory = before.memory;
    now.host_peak = before.host_peak;
    now.host_memory = before.host_memory;
    now.binds_arena = before.binds_arena;
    now.asked_budget = before.asked_budget.value_or(before.budget);
    now.streams = before.streams;
    now.recomputes = before.recomputes;
    now.by = before.by;
    std::string message = "the schedule for " + remat::detail::count_of(before.budget, "byte") + ", the best found";
    if (now.status == remat::solve_status::error) message += "; within this budget: " + now.message;
    if (now.status == remat::solve_status::infeasible ||
        now.lower_bound.value_or(0) > remat::with_rounding(*now.time)) {
      message += "; it refutes a bound that was proven for this budget, which is a defect of remat: please report it";
      now.lower_bound.reset();
    }
    now.status = remat::solve_status::feasible;
    now.message = std::move(message);
  };
  remat::carry_over_budgets(budgets, answers, is_better, carry_over);
}

/// Solves for each budget and returns the outcomes in the order of `budgets`. Each solve has the whole limits. Where
/// the solver carries over, a faster schedule for a smaller budget answers for a larger one, too.
[[nodiscard]] inline std::vector<outcome> solve_budgets(const solving& common, const named_solver& solver,
                                                        const std::vector<std::int64_t>& budgets) {
  const auto solve = [&](std::int64_t budget, std::size_t position) {
    std::string text = solver.name + " within " + remat::format_bytes(budget);
    if (budgets.size() > 1) text += " (" + std::to_string(position + 1) + " of " + std::to_string(budgets.size()) + ")";
    common.line->begin(std::move(text), common.run.time_limit);
    remat::run_control run = common.run;
    run.on_progress = [&](const remat::progress& news) { common.line->update(news); };
    outcome out = guarded(*common.what, solver, budget, run);
    common.line->finish();
    return out;
  };
  std::vector<outcome> answers = remat::solve_budgets<outcome>(
      budgets, solve, [](const outcome&, const outcome&) { return false; }, [](const outcome&, outcome&) {});
  carry_over_budgets(solver, budgets, answers);
  return answers;
}

/// Bytes below which no schedule takes at most `longest`, by proof.
using least_bytes_within = std::function<std::int64_t(double longest, const remat::run_control& run)>;

/// The dual problem: the least peak (or arena, if the solver binds that) whose time is at most (1 + `most`) × the
/// baseline's, by `remat::bisect_budgets`.
///
/// All solves together have one solve's time limit; under a limit of work, each of at most 16 has a sixteenth of it.
/// Solvers are heuristic, so the least peak found is proven only if it meets a bound: that of `least_within`, or the
/// budgets within which a solve has proven that all schedules take longer.
[[nodiscard]] inline outcome solve_for_memory(const solving& common, const named_solver& solver, double most,
                                              const least_bytes_within& least_within) {
  const subject& what = *common.what;
  const double longest = what.baseline_time * (1 + most), limit = remat::with_rounding(longest);
  remat::trade_off_options options;
  options.probes = common.run.has_work_limit() ? 16 : 64;
  options.run = common.run;
  options.run.on_progress = [&](const remat::progress& news) { common.line->update(news); };
  const remat::run_clock clock(common.run);
  common.line->begin(solver.name + ", least memory for " + remat::format_percent(most) + " overhead",
                     common.run.time_limit, progress_line::objective::bytes);
  std::int64_t least = what.least_bytes;  // proven
  if (least_within) least = std::max(least, least_within(longest, clock.limits(0.1)));
  std::optional<outcome> best;
  outcome last;
  const auto probe = [&](std::int64_t budget, const remat::run_control& run) -> remat::budget_probe {
    last = guarded(what, solver, budget, run);
    const bool proves_none =
        last.status == remat::solve_status::infeasible || (last.lower_bound && *last.lower_bound > limit);
    if (!last.time || *last.time > limit) return {{}, proves_none};
    if (!best || last.bound_bytes() < best->bound_bytes()) best = last;
    return {last.bound_bytes()};
  };
  // A schedule that is fast enough ends a solve, but not if its arena may be too large.
  const double enough = solver.binds_arena ? -std::numeric_limits<double>::infinity() : limit;
  options.run.time_limit = clock.left();
  least = remat::bisect_budgets(least, what.baseline_bytes, options, probe, enough).least;
  common.line->finish();

  outcome out = best ? *std::move(best) : outcome{};
  out.solver = solver.name;
  out.seconds = clock.seconds();
  out.own.set("least_bytes", least);
  out.is_least_memory = true;
  if (out.time) {
    out.budget = out.bound_bytes();
    out.status = out.budget <= least ? remat::solve_status::optimal : remat::solve_status::feasible;
    const std::string kind = out.binds_arena ? "arena" : "peak", limits = remat::format_percent(most, 2) + " overhead";
    if (out.status == remat::solve_status::optimal)
      out.message = "proven: no schedule of at most " + limits + " has a smaller " + kind +
                    "; the gap is that of its time, within that " + kind;
    else
      out.message = "the least " + kind + " found for at most " + limits + "; such a schedule needs at least " +
                    remat::detail::count_of(least, "byte");
    return out;
  }
  out.budget = what.baseline_bytes;
  out.lower_bound = last.lower_bound;
  if (last.status == remat::solve_status::error) {
    out.status = last.status;
    out.message = last.message;
    return out;
  }
  out.status = common.run.stop.stop_requested() ? remat::solve_status::cancelled : remat::solve_status::timeout;
  if (remat::ended_by_itself(last.own) && !clock.should_stop()) out.own.set(remat::ended_figure, true);
  out.message = "found no schedule of at most " + remat::format_percent(most, 2) +
                " overhead, even within the baseline's " + (solver.binds_arena ? "arena" : "peak");
  return out;
}

/// The least budget, for people whose own is infeasible.
struct least_budget {
  std::int64_t found = 0;   ///< bytes within which there is a schedule
  std::int64_t proven = 0;  ///< bytes below which there is none
};

/// Bisection with `solver` between `proven` and `known`, which has a schedule; empty if no budget up to the baseline
/// has one. It gets at most a second, or a quarter of the work.
[[nodiscard]] inline std::optional<least_budget> find_least_budget(const subject& what, const named_solver& solver,
                                                                   std::int64_t proven,
                                                                   std::optional<std::int64_t> known,
                                                                   remat::run_control run) {
  remat::trade_off_options options;
  options.probes = run.has_work_limit() ? 16 : 64;
  run.crew = nullptr;
  run.on_progress = {};
  if (run.has_work_limit()) run.work_limit = std::max<std::uint64_t>(run.work_limit / 4, 1);
  run.time_limit = std::min<std::chrono::nanoseconds>(run.time_limit, std::chrono::seconds(1));
  options.run = run;
  std::optional<std::int64_t> best = known;
  const auto probe = [&](std::int64_t budget, const remat::run_control& part) -> remat::budget_probe {
    if (known && budget >= *known) return {known};
    const outcome o = guarded(what, solver, budget, part);
    if (!o.solved()) return {{}, o.status == remat::solve_status::infeasible};
    best = std::min(best.value_or(o.bound_bytes()), o.bound_bytes());
    return {o.bound_bytes()};
  };
  const std::int64_t high = known.value_or(what.baseline_bytes);
  if (high < proven) return std::nullopt;
  // Any schedule is good enough, and ends a solve; an arena may still be too large for it.
  const double enough =
      solver.binds_arena ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  const std::int64_t least = remat::bisect_budgets(proven, high, options, probe, enough).least;
  if (!best) return std::nullopt;
  return least_budget{*best, std::min(least, *best)};
}

/// The words for it: bytes, and a percentage of the baseline that is enough when it is typed as a budget.
[[nodiscard]] inline std::string least_budget_text(const subject& what, const least_budget& least) {
  const auto size = [&](std::int64_t bytes, bool up) {
    __extension__ using wide = __int128;
    const wide baseline = std::max<std::int64_t>(what.baseline_bytes, 1);
    const auto tenths = static_cast<std::int64_t>((wide{bytes} * 1000 + (up ? baseline - 1 : 0)) / baseline);
    return remat::detail::count_of(bytes, "byte") + " (" + remat::format_percent(static_cast<double>(tenths) / 1000) +
           ")";
  };
  if (least.found == least.proven) return "the least budget with a schedule is " + size(least.found, true);
  return "there is a schedule within " + size(least.found, true) + ", and none below " + size(least.proven, false);
}

}  // namespace remat_plan
