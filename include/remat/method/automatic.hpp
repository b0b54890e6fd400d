// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <functional>
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

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/impl/automatic.hpp"
#endif
