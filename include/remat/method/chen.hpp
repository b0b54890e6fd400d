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

/// Options of `chen_sqrt`.
struct chen_sqrt_options {
  run_control run{};  ///< Limits, seed, threads, progress.
};

/// Saves every √n-th cut of the forward order, and computes the rest again segment by segment \cite chen2016sublinear.
///
/// On a graph the cuts are those of each level of `cut_levels`, from cuts everywhere to the cuts that the fewest bytes
/// cross; the fastest schedule that fits is the answer. On a chain the cuts are its stages. The baseline is the answer
/// if it fits. A heuristic.
///
/// O(levels · (operations + reads and writes)) time, with at most log n levels. Work: `work_of::visit` for each
/// operation and schedule tried. Polls before each try; on a chain, whose one try takes microseconds, not at all.
struct chen_sqrt_solver {
  using options_type = chen_sqrt_options;                ///< The options of this solver.
  static constexpr std::string_view name = "chen_sqrt";  ///< The solver's name in tables and progress reports.

  /// Returns the best schedule found within the budget of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const chen_sqrt_options& options = {}) const;
  /// Returns the best schedule found within the budget of the chain, if any, and a proven lower bound on the time.
  [[nodiscard]] chain_solution operator()(const chain_problem& p, const chen_sqrt_options& options = {}) const;
};
/// The solver as a function object: `chen_sqrt(p, options)`.
inline constexpr chen_sqrt_solver chen_sqrt{};

/// Options of `chen_greedy`.
struct chen_greedy_options {
  /// \name Settings (`records` says what they are)
  /// @{
  std::uint32_t sizes = 200;
  /// @}
  run_control run{};  ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() {
    using o = chen_greedy_options;
    return std::tuple{
        option("sizes", &o::sizes, "So many segment sizes are tried for each level of cuts.").from(1).fast(50)};
  }
};

/// Divides the forward order into segments by bytes \cite chen2016sublinear (their algorithm 3): a segment ends at the
/// first cut behind which it has made more than b bytes. The one parameter b is searched, from one segment to as many
/// as there are cuts; the fastest schedule that fits is the answer.
///
/// The cuts are those of each level of `cut_levels`. The baseline is the answer if it fits. A heuristic.
/// O(levels · sizes · (operations + reads and writes + segments²)) time. Work: `work_of::visit` for each operation and
/// schedule tried. Polls before each try. Throws `bad_argument` if `sizes` is 0.
struct chen_greedy_solver {
  using options_type = chen_greedy_options;                ///< The options of this solver.
  static constexpr std::string_view name = "chen_greedy";  ///< The solver's name in tables and progress reports.

  /// Returns the best schedule found within the budget of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const chen_greedy_options& options = {}) const;
};
/// The solver as a function object: `chen_greedy(p, options)`.
inline constexpr chen_greedy_solver chen_greedy{};

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/impl/chen.hpp"
#endif
