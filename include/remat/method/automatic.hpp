// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/concepts.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// A solver of the user's that `automatic` runs as one of its parts.
struct automatic_part {
  std::string name{};  ///< for `solution::by`
  /// Solves within the limits of `run`. Only the schedule of its answer is taken, and checked; a schedule that is not
  /// legal throws `internal_error`, one over the budget is left out. Its bounds are not believed. If it throws, the
  /// solve goes on without it, and `solution::message` names it.
  std::function<solution(const problem& p, const run_control& run)> solve{};
};

/// `solver` with its options but for `run` as a part of `automatic`.
template <class Solver>
requires solver_for<Solver, problem>
[[nodiscard]] automatic_part automatic_part_of(const Solver& solver,
                                               const typename Solver::options_type& options = {}) {
  return {std::string(Solver::name), detail::solve_with(solver, options)};
}

/// Options of `automatic`.
struct automatic_options {
  /// \name Settings (`records` says what they are)
  /// @{
  double gap = 0;
  /// @}
  std::vector<automatic_part>
      extra_solvers{};  ///< run after `hiremate`, each with its share of what is left of the limits
  run_control run{};    ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() {
    using o = automatic_options;
    return std::tuple{
        option("gap", &o::gap, "end with a time of at most (1 + gap) × the proven bound").from(0).fast(0.01)};
  }
};

/// Runs several solvers and returns the best schedule. Its name in output is `auto`.
///
/// First come a proven bound and the solvers that end by themselves: `no_remat`, `evict`, `twremat`, `no_remat` in the
/// order of least peak, `chen_greedy`, `chen_sqrt`, `revolve`; if none has a schedule, `evict` and `twremat` once more
/// with larger shares. Then `refined` begins with all schedules found: a better bound, eviction, a short refinement. If
/// that leaves a gap, `rotor` and `rockmate` with `retain` follow, and `hiremate` with small integer programs: on
/// graphs of 500 to 1,999 operations only if the best schedule is more than 0.3 % above the bound, and on larger graphs
/// `hiremate` alone, with most of the limits. Then come `extra_solvers`. At last `refined` goes on, from all schedules
/// found, with all that is left.
/// Each part gets a share of what is left of the limits (`run_clock::part`). The solve ends as soon as a schedule is
/// within `gap` of the bound, or the budget is proven infeasible.
///
/// `solution::by` names the part that found the schedule, as "auto/rockmate/retain". Figures (`solve_statistics::own`):
/// `parts`, a list, one for each part that ran: `part`, `status`, `time` and `by` of its schedule, `seconds`, its
/// own `figures`, and the `message` of one that failed. The answer is never slower than that of a part within its
/// share. Its work is the sum of the parts' (figure `work` of each), and of nothing else. For a seed and a work limit
/// the answer is the same for any number of threads. Throws `bad_argument` for a `gap` that is NaN or negative, and for
/// one of `extra_solvers` whose `solve` is empty. Cancellation: as the slowest of its parts. Progress comes in the name
/// of `auto`, the part as the stage.
///
///     solution s = automatic(p.with_budget(budget), {.run = {.time_limit = std::chrono::seconds(10), .threads = 4}});
struct automatic_solver {
  using options_type = automatic_options;           ///< The options of this solver.
  static constexpr std::string_view name = "auto";  ///< The solver's name in tables and progress reports.

  /// Returns the best schedule found within the budget of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const automatic_options& options = {}) const;
};
/// The solver as a function object: `automatic(p, options)`.
inline constexpr automatic_solver automatic{};

/// All trade-offs in one call: the answer of `automatic` for each budget in bytes, in the order of `budgets`. More
/// memory never takes more time, and never has the higher bound.
///
/// It takes less than a solve of each budget by itself: a schedule for a budget serves the larger ones, a bound for a
/// budget serves the smaller ones, and groups of operations that are equal are solved once. The parts that end by
/// themselves run first, the largest budget first; each budget then gets half of an equal share of what is left. The
/// rest goes to the budgets whose schedules are not within `gap` of their bounds, the smallest such gap first, each
/// with an equal share of what is left.
///
/// `run` limits all budgets together; `solving` gives the other options. Throws `bad_argument` for a negative budget
/// and for what `automatic` refuses. Deterministic for a seed and a limit of work. Cancellation: as `automatic`.
///
///     const std::vector<std::int64_t> budgets = {peak / 4, peak / 2, peak};
///     const run_control minute{.time_limit = std::chrono::minutes(1)};
///     for (const solution& s : frontier(p, budgets, automatic, minute, {.gap = 0.001})) use(s);
[[nodiscard]] std::vector<solution> frontier(const problem& p, std::span<const std::int64_t> budgets,
                                             const automatic_solver& solver, const run_control& run = {},
                                             const automatic_options& solving = {});

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/impl/automatic.hpp"
#endif
