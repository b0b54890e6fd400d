// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

#include "remat/chain/chain.hpp"
#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// Options of `no_remat`.
struct no_remat_options {
  /// \name Settings (`records` says what they are)
  /// @{
  bool reorder = false;
  std::uint64_t moves = 20'000;
  /// @}
  run_control run{};  ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() {
    using o = no_remat_options;
    return std::tuple{
        option("reorder", &o::reorder, "Search for the order of least peak; otherwise take the listed order."),
        option("moves", &o::moves, "The search makes at most so many moves.").fast(2'000)};
  }
};

/// The baseline: every needed operation once, in the listed order, each tensor freed right after its last use. With
/// `reorder`: in the order of the least peak that `least_peak_order` finds.
///
/// A schedule that fits the budget is `optimal`, because it takes the least time. The status is `infeasible` if an
/// operation or the end of the training step alone needs more than the budget; in other cases, a peak above the budget
/// proves nothing. O(reads and writes) time; with `reorder`, that of `least_peak_order`. Cancellation: the listed order
/// does not poll; the search polls as `least_peak_order` does.
///
/// `solution::by`: "no_remat", or "no_remat/reorder" for another order.
///
///     const solution s = no_remat(p);                     // how much memory the listed order takes: s.peak_bytes
///     const solution t = no_remat(p, {.reorder = true});  // … and the best order without recomputation
struct no_remat_solver {
  using options_type = no_remat_options;                ///< The options of this solver.
  static constexpr std::string_view name = "no_remat";  ///< The solver's name in tables and progress reports.

  /// Returns the baseline if it is within the budget of `p`, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const no_remat_options& options = {}) const;

  /// Returns the baseline of a chain if it is within the budget: every forward with everything kept, then every
  /// backward.
  [[nodiscard]] chain_solution operator()(const chain_problem& p, const no_remat_options& options = {}) const;
};
/// The solver as a function object: `no_remat(p, options)`.
inline constexpr no_remat_solver no_remat{};

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/impl/no_remat.hpp"
#endif
