// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <functional>
#include <optional>

#include "remat/memory/plan.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// \file
/// Schedules whose arena is within a budget. An arena is larger than the peak: sizes are rounded up to the alignment,
/// and addresses leave gaps. A solver bounds the peak alone.

/// The problem whose peak is the load of an arena: every size is the bytes that it takes of the arena.
///
/// Sizes of tensors and workspaces are rounded up to a multiple of `alignment` bytes. Tensors in `elsewhere` do not lie
/// in the arena, and have size 0. The result has no budget and no known bound. Times and the structure are those of
/// `p`, so a schedule of one problem is a schedule of the other, and takes the same time.
///
/// An arena with this alignment (`memory_plan::arena_bytes`) is never smaller than the peak of its schedule in this
/// problem. So a budget that is proven infeasible here is infeasible for arenas, and a lower bound on the time that is
/// proven here holds for all schedules whose arena is within the budget.
///
/// A link to the host and its budget stay; the latency is less by the time of `alignment` bytes, but not negative, so
/// that a copy of rounded bytes takes no longer than the copy of the true ones, and bounds hold as before. Under a
/// smaller latency they need not, and `fit_arena` then reports none. The budget of the host binds the load of the
/// host's arena.
///
/// O(operations + reads and writes). Throws `bad_argument` for an alignment below 1, for an id in `elsewhere` that is
/// no tensor, and for sizes that exceed 2^63 − 1 bytes when rounded.
[[nodiscard]] problem arena_problem(const problem& p, std::int64_t alignment = memory_plan_options{}.alignment,
                                    std::span<const tensor_id> elsewhere = {});

/// Options of `fit_arena` and `fit_arena_by`.
struct fit_arena_options {
  /// The share of the first solve in the limits.
  static constexpr double first_share = 0.2;

  std::int64_t budget = problem::unlimited;  ///< bytes, for the arena; the budget of the problem is ignored
  /// Tensors that lie elsewhere, such as outputs in memory of the caller. They count in the peak and not in the arena,
  /// so the arena may be below the peak.
  std::vector<tensor_id> elsewhere{};
  memory_plan_options
      memory{};  ///< alignment, and seed of the packing; `target_bytes` and the limits are set by `fit_arena`
  std::uint32_t solves = 8;  ///< the most solves; at least 1
  run_control run{};         ///< limits of all solves and packings together
};

/// The answer of `fit_arena`: a solution whose arena is within the budget, with the arena.
///
/// `peak_bytes` and `time` are those of the plan in the problem that was given, and `lower_bound` holds for all
/// schedules whose arena is within the budget. Without a plan, `status` is `infeasible` only if a solver has proven
/// that no arena is within the budget.
struct arena_solution : solution {
  /// The arena of the plan: `offsets[i]` is that of `lifetimes_of(p, *plan).allocations[i]`. It has passed
  /// `check_memory`. A tensor that lies elsewhere has no bytes in it; its offset has no meaning.
  std::optional<memory_plan> memory{};
  std::int64_t solved_budget = 0;   ///< bytes: the peak budget of the solve that found the plan; else of the last solve
  std::int64_t smallest_arena = 0;  ///< bytes, of all schedules whose arena was planned; 0 if there was none
  std::uint32_t solves = 0;         ///< the number of solves that were made
};

/// A fast schedule whose arena is within a budget, by a solver that bounds the peak. If the problem has a link to the
/// host, that is the device's arena; `plan_memory` of `host_intervals_of` gives the other one.
///
/// `solve(problem, run)` makes one solve and returns a `solution`. It gets `arena_problem` with a budget for the peak.
/// Method:
///
/// 1. The first solve gets the whole budget and a fifth of the limits. Its schedule is packed until the arena is within
///    the budget; an arena that comes near gets more work.
/// 2. If the arena fits and a limit ended the solve, the second solve has the same budget, and most of the limits.
/// 3. If it does not fit, the budget of the next solve is lower by the missing bytes and half of the gaps, and by twice
///    as much after each further failure.
/// 4. Budgets between the lowest that was too large and the highest that was not are then bisected, as long as a faster
///    schedule is known for the former. The fastest schedule that fits is the answer, whichever solve found it.
/// 5. If none fits, the rest of the limits goes into packing the schedule whose arena came nearest.
///
/// If a first solve that no limit ended finds no schedule, no other is made, and its status is the answer's. `optimal`
/// says that the time meets a lower bound that was proven within the whole budget. If schedules were found and none
/// fits, the status is `timeout` or `cancelled`, and `message` names the smallest arena.
///
/// Limits: each solve and each packing gets a share of what is left, a packing at most three tenths but for the last. A
/// unit of work is one of the solver's; the work of a packing grows with the limit of work, and is not counted in it.
/// Without a limit of time, equal input, seed and work limit give the same answer if the solver keeps that promise.
/// Cancellation: as `solve`, `plan_memory` and the checker; the limits are polled before each solve but the first. A
/// schedule that was found when the stop request came is still packed, without a search, and is the answer if it fits.
///
/// Throws `bad_argument` for `solves` = 0, a negative budget, the arguments that `arena_problem` refuses, and a
/// schedule of `solve` that is not legal; exceptions of `solve` propagate.
[[nodiscard]] arena_solution fit_arena_by(const problem& p,
                                          const std::function<solution(const problem&, const run_control&)>& solve,
                                          const fit_arena_options& options = {});

/// `fit_arena_by` with a solver, and its options but for `run`.
///
///     fit_arena_options options{.budget = bytes, .run = {.time_limit = std::chrono::seconds(10)}};
///     const arena_solution fit = fit_arena(p, automatic, options);
///     if (fit.plan) run(launch_plan(graph, p, fit.plan->steps, *fit.memory));
template <class Solver>
requires solver_for<Solver, problem>
[[nodiscard]] arena_solution fit_arena(const problem& p, const Solver& solver, const fit_arena_options& options = {},
                                       const typename Solver::options_type& solving = {}) {
  return fit_arena_by(p, detail::solve_with(solver, solving), options);
}

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/execute/impl/fit_arena.hpp"
#endif
