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
#include <string_view>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// Options of `least_memory_within`.
struct least_memory_within_options {
  std::uint32_t budgets = 12;  ///< the most budgets that are tried; each more halves what the bound may still gain
  /// `turnaround_options::chain_moments` of a second bisection above what the first one has proven. 12 takes some
  /// seconds on some hundred operations, and raises the bound by a fifth to a third where a good part of the step runs
  /// again.
  std::uint32_t chain_moments = 0;
  run_control run{};  ///< `stop` and `time_limit` end the search; the other fields are not used

  /// The options for the limits of `run`: chains of moments, which may take long, only if its time is limited.
  [[nodiscard]] static least_memory_within_options under(const run_control& run) {
    return {.chain_moments = run.has_time_limit() ? 12U : 0U, .run = run};
  }
};

/// Returns a lower bound, in bytes, on the peak of every schedule that takes at most `max_time`, in the cost model's
/// unit: what `least_memory_bound` is for any time.
///
/// A lower bound on the time of all schedules within a budget (`turnaround_bound`, or `offload_bound` if the problem
/// has a link) that exceeds `max_time` proves that every schedule that is fast enough has a higher peak. Bisection
/// between `least_memory_bound` and the listed order's peak, or the budget of `p` if that is smaller, finds the largest
/// budget with such a proof, nearly; it ends at intervals below a thousandth. If the proof holds for the budget of `p`,
/// the result is that budget plus 1; `problem::unlimited` if no schedule at all is fast enough. Whatever ends the
/// search, the result is a bound. One search of a bound for each budget. Throws `bad_argument` for a NaN.
[[nodiscard]] std::int64_t least_memory_within(const problem& p, double max_time,
                                               const least_memory_within_options& options = {});

/// \file
/// Searches over budgets that use a solver as a part: the frontier (the least time for each budget), and the dual
/// problem (the least memory within a time). `execute/fit_arena.hpp` has a budget for the arena.

// ---- the frontier ------------------------------------------------------------------------------------------------

namespace detail {

/// The positions of budgets, the smallest budget first.
[[nodiscard]] inline std::vector<std::size_t> ascending(std::span<const std::int64_t> budgets) {
  std::vector<std::size_t> order(budgets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return budgets[a] < budgets[b]; });
  return order;
}

}  // namespace detail

/// A schedule for a smaller budget is legal within a larger one: if the best answer `before` for a smaller budget is
/// better than the one for a larger budget (`is_better(before, now)`), `carry_over(before, now)` puts it in its place.
/// Of equal budgets, the first one's answer counts for all.
template <class Answer, class IsBetter, class CarryOver>
void carry_over_budgets(std::span<const std::int64_t> budgets, std::vector<Answer>& answers, IsBetter&& is_better,
                        CarryOver&& carry_over) {
  const std::vector<std::size_t> order = detail::ascending(budgets);
  const Answer* before = nullptr;
  for (std::size_t k = 0; k < order.size(); ++k) {
    Answer& now = answers[order[k]];
    if (k != 0 && budgets[order[k]] == budgets[order[k - 1]]) {
      now = answers[order[k - 1]];
      continue;
    }
    if (before != nullptr && is_better(*before, now)) carry_over(*before, now);
    if (before == nullptr || !is_better(*before, now)) before = &now;
  }
}

/// Solves for each budget, the smallest first, and returns the answers in the order of `budgets`.
///
/// `solve(budget, position)` returns an `Answer`; `position` counts from 0 in ascending order of budgets. Equal budgets
/// are solved once. Answers for smaller budgets are carried over to larger ones (`carry_over_budgets`).
template <class Answer, class Solve, class IsBetter, class CarryOver>
[[nodiscard]] std::vector<Answer> solve_budgets(std::span<const std::int64_t> budgets, Solve&& solve,
                                                IsBetter&& is_better, CarryOver&& carry_over) {
  const std::vector<std::size_t> order = detail::ascending(budgets);
  std::vector<Answer> answers(budgets.size());
  for (std::size_t k = 0; k < order.size(); ++k)
    if (k == 0 || budgets[order[k]] != budgets[order[k - 1]]) answers[order[k]] = solve(budgets[order[k]], k);
  carry_over_budgets(budgets, answers, is_better, carry_over);
  return answers;
}

/// A function that solves a problem within limits.
using problem_solver = std::function<solution(const problem&, const run_control&)>;

/// All trade-offs in one call: the answer of `solve` for each budget, in the order of `budgets`. More memory never
/// takes more time: a faster schedule for a smaller budget answers for the larger one, too (`carry_over_budgets`).
///
/// `solve(problem, run)` returns a `solution`. The budgets are independent pieces (`core/run.hpp`): `run.threads` of
/// them are solved at the same time, so that `solve` is called by several threads at once, or as many as `run.crew` has
/// members. Other processes solve budgets if `solver` is not empty and their crew has the kind
/// `frontier_points(solver, …)` with the same function. Each budget gets an equal share of the limit of work, and its
/// share of the time that is left when it begins. Throws `bad_argument` for a negative budget. Deterministic for a seed
/// and a limit of work, if the solver is: the same answers for any threads and crew. Cancellation: as `solve`.
[[nodiscard]] std::vector<solution> frontier_by(const problem& p, std::span<const std::int64_t> budgets,
                                                const problem_solver& solve, const run_control& run = {},
                                                std::string_view solver = {});

/// How other processes solve budgets of `frontier_by`; `solver` is the name given there.
[[nodiscard]] piece_kind frontier_points(std::string_view solver, problem_solver solve);

// ---- the dual problem --------------------------------------------------------------------------------------------

/// Options of `bisect_budgets`, `least_memory_by` and `least_memory_for`.
struct trade_off_options {
  std::uint32_t probes = 24;  ///< the most solves; under a limit of work, each gets an equal part of it
  run_control run{};          ///< limits of all solves together
};

/// The result of a solve within one budget.
struct budget_probe {
  std::optional<std::int64_t> bytes{};  ///< the bytes of its answer, at most the budget; none if it is not good enough
  bool proves_none = false;             ///< proven: no answer within the budget is good enough
};

/// The result of `bisect_budgets`.
struct budget_bisection {
  bool found = false;      ///< the first probe was good enough
  std::int64_t least = 0;  ///< nothing within fewer bytes is good enough: `low`, or what probes have proven
};

/// The least budget between `low` and `high`, in bytes, that `probe` finds good enough, by bisection.
///
/// `probe(budget, run)` makes one solve under `run`, its part of the limits. The first probe is at `high`; if that
/// fails, no other is made. The next budget is always below the bytes of the best answer, and above those within which
/// nothing is good enough by proof. Quick probes come next, each for 3 % of the time that is left, until the interval
/// is a 64th of the best. A heuristic that finds nothing within a budget may still find something within less, so
/// budgets of 4, 8 and 12 % below the best follow. The rest of the time goes to four rounds of longer probes, from 6 to
/// 40 % of what is left each, in intervals below the best.
///
/// A solve is stopped as soon as its progress reports an objective of at most `target`, or a lower bound above it,
/// except under a limit of work: then the work alone decides. The answer decides about the budget, never the progress:
/// if a solve that was stopped in this way has no answer that is good enough, and proves nothing, it is made once more
/// without a stop, and so are all after it. Each probe gets an equal part of the work. Throws `bad_argument` for
/// `probes` = 0. Cancellation: as `probe`; the deadline and the stop token are polled before each probe but the first.
/// Progress comes from the solves, but its objective is the bytes of the best answer so far, its bound the least bytes
/// that a good answer may have by proof.
budget_bisection bisect_budgets(std::int64_t low, std::int64_t high, const trade_off_options& options,
                                const std::function<budget_probe(std::int64_t budget, const run_control& run)>& probe,
                                double target = -std::numeric_limits<double>::infinity());

/// The dual problem: a schedule of at most `max_time` with as little memory as `solve` finds, by bisection over
/// budgets (`bisect_budgets`) between a lower bound (`least_memory_within`, which gets at most a tenth of the time) and
/// the listed order's peak, or `p`'s budget if that is smaller.
///
/// `max_time` is in the cost model's unit, for instance 1.3 × `p.graph().baseline_time`. `solve(problem, run)` returns
/// a `solution`. Solvers are heuristic, so the peak need not be the least. The figure `least_bytes` of the answer's
/// statistics (`statistics.own`) is proven: a schedule that is fast enough needs at least so many bytes. A solve that
/// ends with a lower bound above `max_time` raises it, too. `optimal` says that the peak meets it. If no schedule is
/// fast enough, the status is `infeasible` if that is proven, else how the first solve ended. Throws `bad_argument` for
/// a NaN. Deterministic for a seed and a limit of work, if the solver is. Cancellation: as `solve`.
[[nodiscard]] solution least_memory_by(const problem& p, double max_time,
                                       const std::function<solution(const problem&, const run_control&)>& solve,
                                       const trade_off_options& options = {});

// ---- solved with a solver
// ----------------------------------------------------------------------------------------------

/// `frontier_by` with a solver, and its options but for `run`.
template <class Solver>
requires solver_for<Solver, problem>
[[nodiscard]] std::vector<solution> frontier(const problem& p, std::span<const std::int64_t> budgets,
                                             const Solver& solver, const run_control& run = {},
                                             const typename Solver::options_type& solving = {}) {
  return frontier_by(p, budgets, detail::solve_with(solver, solving), run, Solver::name);
}

/// How other processes solve budgets of `frontier` with this solver. Its options must be the same everywhere.
template <class Solver>
requires solver_for<Solver, problem>
[[nodiscard]] piece_kind frontier_points(const Solver& solver, const typename Solver::options_type& solving = {}) {
  return frontier_points(Solver::name, detail::solve_with(solver, solving));
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
