// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/method/rotor.hpp"
#include "remat/mip/model.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// A solver of the user's that `automatic` runs as one of its parts.
struct automatic_part {
  std::string name{};  ///< the name that `solution::by` gives
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
  double gap = default_gap;
  /// @}
  std::vector<automatic_part>
      extra_solvers{};  ///< run after `hiremate`, each with its share of what is left of the limits
  run_control run{};    ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() {
    using o = automatic_options;
    return std::tuple{
        option("gap", &o::gap, "End with a time of at most (1 + gap) × the proven bound.").from(0).fast(0.01)};
  }
};

/// Runs several solvers and returns the best schedule. Its name in output is `auto`.
///
/// On a graph whose forward line is a chain of operations, the schedule of `revolve` comes before anything that a limit
/// could cut off: the answer is never worse. A solve that is cut off without a schedule has the listed order, if that
/// fits, or, on at most 10,000 operations, that of `chen_sqrt`.
///
/// Then come a proven bound, `no_remat` and `evict`. If these have no schedule: `twremat`, `no_remat` in the order of
/// least peak, `chen_greedy`, `chen_sqrt` and `revolve`, and if none of them has one, `evict` with other random numbers
/// up to sixteen times, and `twremat` once more with a larger share. Then `refined` begins with all schedules found: a
/// better bound, eviction, a short refinement.
///
/// If that leaves a gap, the other parts race for what is left of the limits: those of `refined`, those named above
/// that have not run yet, `rotor` and `rockmate` with `retain`, `hiremate` with small integer programs, and
/// `extra_solvers`. They run in slices: first one for each; then the part with the least (cost so far / weight) gets a
/// slice some times as long as its last one. The weight of a part grows when it closes some of the gap, and falls when
/// it does not. Each slice starts from the best schedules and the best bound of all. Two fifths of the limits are left
/// to the last slice, which is refinement's. The parts that are not of `refined` do not run if refinement closes such a
/// gap faster: below 0.02 %, below 0.3 % on graphs of 500 to 1,999 operations. `rotor` and `rockmate` do not run on
/// larger graphs. From 10,000 operations on, `hiremate` has most of the limits.
///
/// For a problem with a link, a quarter of the limits goes to recomputation alone, half where that begins more than 2 %
/// from its bound, less where it comes within 0.2 %; on steps of at most 24 operations `exact` gets up to three tenths
/// of what is left then; the rest goes to `offload`. Schedules of `frontier` then come one by one.
///
/// With two threads or more, two parts run side by side: under a time limit each thread's next slice begins as soon as
/// its last one has ended. The solve ends as soon as a schedule is within `gap` of the bound, or the budget is proven
/// infeasible.
///
/// Without a limit of time or work, the race goes in rounds. Each takes as much work as all before it together and
/// 3,200,000 units more. The solve ends after a round that closes less than a tenth of the gap; that takes seconds on
/// graphs of some hundred operations, and the answer is the same every time.
///
/// `solution::by` names the part that found the schedule, as "auto/rockmate/retain". Figures (`solve_statistics::own`):
/// `parts`, a list, one for each slice of a part: `part`, `status`, `time` and `by` of its schedule, `seconds`, its
/// own `figures`, and the `message` of one that failed. If a MIP backend fails or breaks its promises, its part goes on
/// without it, and `solution::message` has the first reason. The answer is never slower than that of a part within its
/// slice. Its work is the sum of the parts' (figure `work` of each), and of nothing else. For a seed and a work limit
/// the answer is the same for any number of threads: under such a limit two parts always run side by side. Throws
/// `bad_argument` for a `gap` that is NaN or negative, and for one of `extra_solvers` whose `solve` is empty; these are
/// called on the caller's thread, while no other part runs. Cancellation: as the slowest of its parts. Progress comes
/// in the name of `auto`, the part as the stage.
///
///     solution s = automatic(p.with_budget(budget), {.run = {.time_limit = std::chrono::seconds(10), .threads = 4}});
struct automatic_solver {
  using options_type = automatic_options;           ///< The options of this solver.
  static constexpr std::string_view name = "auto";  ///< The solver's name in tables and progress reports.

  /// Returns the best schedule found within the budget of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const automatic_options& options = {}) const;
  /// The same for a chain: `revolve` comes first, then `rotor`, which finds the best of all schedules that the solvers
  /// of chains can find. Of `options` it takes `run`; `remat-plan` gives it `rotor`'s options, too.
  [[nodiscard]] chain_solution operator()(const chain_problem& p, const automatic_options& options = {},
                                          rotor_options on_chains = {}) const;
};
/// The solver as a function object: `automatic(p, options)`.
inline constexpr automatic_solver automatic{};

/// The kinds of pieces in which solvers divide one solve: what a crew of other processes needs to take part in it.
/// These are the ways to run the distinct parts of a hierarchy or a chain, in `rockmate`, `hiremate` and `automatic`,
/// the searches of `refine`, in `refined` and all that improve schedules by it, those of `offload`, and those for a
/// tree decomposition within a limit of time, in `twremat`.
///
/// All processes give the same backend, that of the solver. It must outlive the kinds.
[[nodiscard]] std::vector<piece_kind> solver_pieces(mip_backend_ref backend);
/// The same with the library's own branch and bound.
[[nodiscard]] std::vector<piece_kind> solver_pieces();

namespace detail::automatic_solve {

/// The bodies of `automatic` and `frontier`. Without a backend, the library's own branch and bound solves small
/// integer programs.
[[nodiscard]] solution solve(std::optional<mip_backend_ref> backend, const problem& p,
                             const automatic_options& options);
[[nodiscard]] std::vector<solution> find_frontier(std::optional<mip_backend_ref> backend, const problem& p,
                                                  std::span<const std::int64_t> budgets, const run_control& run,
                                                  const automatic_options& solving);

}  // namespace detail::automatic_solve

/// `automatic` with a MIP backend of the caller's: `hiremate` solves larger integer programs with it. Else as
/// `automatic_solver`. Make it by `automatic_with`.
template <mip_backend Backend>
struct automatic_on_backend {
  using options_type = automatic_options;           ///< The options of this solver.
  static constexpr std::string_view name = "auto";  ///< The solver's name in tables and progress reports.
  Backend backend{};                                ///< solves the integer programs

  /// Returns the best schedule found within the budget of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const automatic_options& options = {}) const {
    return detail::automatic_solve::solve(backend, p, options);
  }
};

/// `automatic` on a backend: `automatic_with(cbc_backend{})(problem, options)`.
template <mip_backend Backend>
[[nodiscard]] constexpr automatic_on_backend<Backend> automatic_with(Backend backend) {
  return {std::move(backend)};
}

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
///     for (const solution& s : frontier(p, budgets, automatic, minute)) use(s);
[[nodiscard]] std::vector<solution> frontier(const problem& p, std::span<const std::int64_t> budgets,
                                             const automatic_solver& solver, const run_control& run = {},
                                             const automatic_options& solving = {});

/// The same with a backend: `frontier(p, budgets, automatic_with(backend))`.
template <mip_backend Backend>
[[nodiscard]] std::vector<solution> frontier(const problem& p, std::span<const std::int64_t> budgets,
                                             const automatic_on_backend<Backend>& solver, const run_control& run = {},
                                             const automatic_options& solving = {}) {
  return detail::automatic_solve::find_frontier(solver.backend, p, budgets, run, solving);
}

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/impl/automatic.hpp"
#endif
