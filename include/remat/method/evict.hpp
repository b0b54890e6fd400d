// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// Options of `evict`.
struct evict_options {
  /// \name Settings (`records` says what they are)
  /// @{
  std::uint64_t random_passes = 0;
  bool insist = true;
  /// @}
  /// Tensors to hold rather than evict, for instance the saved set of `turnaround_bound`; may be empty.
  std::vector<tensor_id> keep{};
  run_control run{};  ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() {
    using o = evict_options;
    return std::tuple{
        option("random_passes", &o::random_passes,
               "After the passes with fixed weights, so many take random weights, some of them another order."),
        option("insist", &o::insist, "If no pass finds a schedule, try the slower ways.").fast(false)};
  }
};

/// Offline eviction. A pass runs the operations in the listed order. It first recomputes the inputs that are missing;
/// when memory runs out, it evicts the tensor that is cheapest to recompute for its size and the distance of its next
/// use. DTR \cite kirisame2021dtr does the same online.
///
/// Unlike DTR, a pass knows the next uses, frees a tensor right after its last use, and competes with passes of other
/// weights. If no pass finds a schedule, one for a larger budget is repaired until it fits (`refine_moves::repair`). If
/// that fails, passes recompute first what needs the most memory \cite sethi1970; then passes are repeated with more
/// weight on the tensors that they had no memory to recompute; then the pass that came furthest is changed at random,
/// until one reaches the end. Random passes may run the operations in another order, on graphs of at most 20,000
/// operations: near the least memory the order of the first runs decides what fits. At the end, recomputed tensors are
/// held instead if memory is left for them.
///
/// Heuristic: it may find no schedule under a tight budget, which proves nothing. The status `optimal` comes from the
/// bound alone (`turnaround_bound`). Deterministic for a seed and a work limit. Time: each pass about O((reads +
/// evictions) · log(resident tensors)) plus the search for what has to be recomputed; memory O(reads and writes).
/// Throws `bad_argument` if `keep` names a tensor that the problem does not have, and for a problem with a link, which
/// is for `evict_with_copies`. Cancellation: polls at every pass, and within passes and repairs every 4096 steps of a
/// search, which take less than 10 ms. Work: `work_of::visit` for each listed operation of a pass and for each
/// recomputation that free memory may replace, `work_of::move` for each one for which a repair frees memory, and for
/// each 4096 steps of a repair.
///
/// `solution::by`: "evict" for a pass, "evict/fill" after holding what fits, "evict/squeeze" for a repaired schedule of
/// a larger budget.
///
///     const solution s = evict(p.with_budget(p.graph().baseline_peak / 2));
///     if (s.plan) use(*s.plan);
struct evict_solver {
  using options_type = evict_options;                ///< The options of this solver.
  static constexpr std::string_view name = "evict";  ///< The solver's name in tables and progress reports.

  /// Returns the best schedule found within the budget of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const evict_options& options = {}) const;
};
/// The solver as a function object: `evict(p, options)`.
inline constexpr evict_solver evict{};

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/impl/evict.hpp"
#endif
