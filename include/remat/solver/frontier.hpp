// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/concepts.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// \file
/// Searches over budgets that use a solver as a part: the frontier (the least time for each budget), and the dual
/// problem (the least memory within a time). `execute/fit_arena.hpp` has a budget for the arena.

// ---- the frontier ------------------------------------------------------------------------------------------------

/// Solves for each budget, the smallest first, and returns the answers in the order of `budgets`.
///
/// `solve(budget, position)` returns an `Answer`; `position` counts from 0 in ascending order of budgets. Equal budgets
/// are solved once. A schedule for a smaller budget is legal within a larger one: if the best answer `before` for a
/// smaller budget is better than the new one (`is_better(before, now)`), `carry_over(before, now)` puts it in its
/// place.
template <class Answer, class Solve, class IsBetter, class CarryOver>
[[nodiscard]] std::vector<Answer> solve_budgets(std::span<const std::int64_t> budgets, Solve&& solve,
                                                IsBetter&& is_better, CarryOver&& carry_over) {
  std::vector<std::size_t> order(budgets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return budgets[a] < budgets[b]; });
  std::vector<Answer> answers(budgets.size());
  const Answer* before = nullptr;
  for (std::size_t k = 0; k < order.size(); ++k) {
    Answer& now = answers[order[k]];
    if (k != 0 && budgets[order[k]] == budgets[order[k - 1]]) {
      now = answers[order[k - 1]];
      continue;
    }
    now = solve(budgets[order[k]], k);
    if (before != nullptr && is_better(*before, now)) carry_over(*before, now);
    if (before == nullptr || !is_better(*before, now)) before = &now;
  }
  return answers;
}

/// All trade-offs in one call: the answer of `solve` for each budget, in the order of `budgets`. More memory never
/// takes more time: a faster schedule for a smaller budget answers for the larger one, too (`solve_budgets`).
///
/// `solve(problem, run)` returns a `solution`. Each solve gets an equal share of what is left of the limits. Throws
/// `bad_argument` for a negative budget. Deterministic for a seed and a limit of work, if the solver is. Cancellation:
/// as `solve`.
[[nodiscard]] std::vector<solution> frontier_by(
    const problem& p, std::span<const std::int64_t> budgets,
    const std::function<solution(const problem&, const run_control&)>& solve, const run_control& run = {});

// ---- the dual problem --------------------------------------------------------------------------------------------

/// Options of `bisect_budgets`, `least_memory_by` and `least_memory_for`.
struct trade_off_options {
  std::uint32_t probes = 24;  ///< at most this many solves; ten halvings bring the interval of budgets to a thousandth
  run_control run{};          ///< of all solves together
};

/// The least budget between `low` and `high`, in bytes, that `probe` finds good enough, by bisection.
///
/// `probe(budget, run)` makes one solve under `run`, its part of the limits. It returns the bytes that its answer
/// takes, at most `budget`, or nothing if the answer is not good enough. The first probe is at `high`; if that fails,
/// no other is made. The next budget is always below the bytes of the best answer. A heuristic that finds nothing
/// within a budget may still find something within less: when the interval is small, budgets of 4, 8 and 12 % below the
/// best are probed, and the bisection goes on from there.
///
/// A solve is stopped as soon as its progress reports an objective of at most `target`, except under a limit of work:
/// then the work alone decides. Each probe gets an equal part of the work, and from a tenth to a half of the time that
/// is left. Returns true if the first probe was good enough. Throws `bad_argument` for `probes` = 0. Cancellation: as
/// `probe`; the deadline and the stop token are polled before each probe but the first.
bool bisect_budgets(
    std::int64_t low, std::int64_t high, const trade_off_options& options,
    const std::function<std::optional<std::int64_t>(std::int64_t budget, const run_control& run)>& probe,
    double target = -std::numeric_limits<double>::infinity());

/// The dual problem: a schedule of at most `max_time` with as little memory as `solve` finds, by bisection over
/// budgets (`bisect_budgets`) between the least memory bound and the listed order's peak, or `p`'s budget if that is
/// smaller.
///
/// `max_time` is in the cost model's unit, for instance 1.3 × `p.graph().baseline_time`. `solve(problem, run)` returns
/// a `solution`. Solvers are heuristic, so the peak is not proven to be the least; `optimal` says that it meets the
/// least memory bound of every schedule. If no schedule is fast enough, the status is `infeasible` if `max_time` is
/// below the time of the needed operations, else how the first solve ended. Throws `bad_argument` for a NaN.
/// Deterministic for a seed and a limit of work, if the solver is. Cancellation: as `solve`.
[[nodiscard]] solution least_memory_by(const problem& p, double max_time,
                                       const std::function<solution(const problem&, const run_control&)>& solve,
                                       const trade_off_options& options = {});

// ---- with a solver -----------------------------------------------------------------------------------------------

/// `frontier_by` with a solver, and its options but for `run`.
template <class Solver>
requires solver_for<Solver, problem>
[[nodiscard]] std::vector<solution> frontier(const problem& p, std::span<const std::int64_t> budgets,
                                             const Solver& solver, const run_control& run = {},
                                             const typename Solver::options_type& solving = {}) {
  return frontier_by(p, budgets, detail::solve_with(solver, solving), run);
}

/// `least_memory_by` with a solver, and its options but for `run`.
template <class Solver>
requires solver_for<Solver, problem>
[[nodiscard]] solution least_memory_for(const problem& p, double max_time, const Solver& solver,
                                        const trade_off_options& options = {},
                                        const typename Solver::options_type& solving = {}) {
  return least_memory_by(p, max_time, detail::solve_with(solver, solving), options);
}

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/solver/impl/frontier.hpp"
#endif
