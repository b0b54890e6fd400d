// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// Options of `offload`.
struct offload_options {
  /// Legal schedules to begin with: what they recompute is taken, and copies are placed anew. They may exceed the
  /// budget.
  std::vector<schedule> starts{};
  /// \name Settings (`records` says what they are)
  /// @{
  std::uint32_t budgets = 20;
  std::uint32_t refined_candidates = 4;
  double gap = default_gap;
  /// @}
  run_control run{};  ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() {
    using o = offload_options;
    return std::tuple{
        option("budgets", &o::budgets,
               "Recomputation is planned for so many larger budgets before copies fill the rest.")
            .from(1)
            .to(1000)
            .fast(8),
        option("refined_candidates", &o::refined_candidates, "So many of the ways to divide the work are refined.")
            .from(1)
            .fast(2),
        option("gap", &o::gap, "End with a time of at most (1 + gap) × the proven bound.").from(0).fast(0.01)};
  }
};

/// Recomputation and copies to the host together, for a problem with a link (`problem::with_link`).
///
/// A *candidate* says what copies do, and leaves the rest to solvers that only recompute:
///
/// - Copies alone: the listed order, where what does not fit lies on the host.
/// - Eviction that drops or copies, whichever delays the step less (`evict` with a link).
/// - The schedules of `starts`, and those of `evict` for the true budget and for larger ones up to the peak. Where a
///   schedule needs more than the true budget, the tensors whose next use is farthest away lie on the host until then.
/// - The tensors that the choice of `offload_bound` has on the host, also for smaller budgets and slower links, because
///   copies never hide completely. A copy is an operation of no time then; `evict` plans the rest within the budget.
///
/// For each candidate the copies are placed: each copy out as early as its engine is free, each copy back as late as it
/// hides behind computes, as far as memory allows; the simulation of the engines gives the time. The recomputation of
/// the best candidates is refined (`refined`). Then simulated annealing changes recomputation and copies together: a
/// move removes a recomputation, makes a tensor again in place of a copy, copies another tensor, begins copies back
/// earlier or later, or moves a compute; all copies are placed again, and the engines simulated. Several searches run
/// on all threads.
///
/// A problem without a link is left to `refined`. The lower bound is that of `offload_bound`. Heuristic: it may find no
/// schedule under a tight budget, which proves nothing. Deterministic for a seed and a work limit, for any number of
/// threads. Throws `bad_argument` for a schedule of `starts` that is not legal. Cancellation: polls between its parts
/// and moves, as `evict` and `refined` do within them, and every 65,536 computes while copies are placed. Work: that of
/// its parts, `work_of::visit` for each compute whose copies are placed.
///
/// `solution::by`: "offload/listed" for copies alone, "offload/start", "offload/evict" and "offload/refined" after the
/// solver that planned the recomputation, "offload/copies" for the search over both.
///
///     const problem p = problem(graph, roofline_cost{}, budget).with_link({.out = 25e9, .in = 25e9});
///     const solution s = offload(p);
struct offload_solver {
  using options_type = offload_options;                ///< The options of this solver.
  static constexpr std::string_view name = "offload";  ///< The solver's name in tables and progress reports.

  /// Returns the best schedule found within both budgets of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const offload_options& options = {}) const;
};
/// The solver as a function object: `offload(p, options)`.
inline constexpr offload_solver offload{};

/// How another process runs the searches of `offload` for recomputation and copies together, for a crew.
[[nodiscard]] piece_kind offload_pieces();

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/impl/offload.hpp"
#endif
