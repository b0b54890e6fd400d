// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>

#include "remat/method/evict.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// Offline eviction for a problem with a link (`problem::with_link`): a pass of `evict` brings a missing tensor back by
/// its operations or by a copy from the host, whichever delays the step less.
///
/// A copy costs its price by the bound (`offload_bound`), and no less than the time for which the step would wait for
/// it: the pass keeps a clock of each direction of the link. Passes are made at several scales of the prices, and with
/// a preference for the tensors that the bound's choice has on the host; the copies of each sequence of computes are
/// then placed, and the engines simulated. At the end, recomputations are taken out as long as the step gets faster.
/// The listed order with copies comes first, and recomputation alone (`evict`) next; `insist` is not used. On a problem
/// without a link it is `evict`.
///
/// Heuristic: it may find no schedule under a tight budget, which proves nothing. The status `optimal` comes from the
/// bound alone. Deterministic for a seed and a work limit. Complexity of a pass, cancellation, work and errors: as
/// `evict`.
///
/// `solution::by`: "evict", "evict/fill" after recomputations were taken out, "evict/listed" for the listed order with
/// copies; without a link as `evict` says.
///
///     const solution s = evict_with_copies(p.with_link({.out = 25e9, .in = 25e9}));
struct evict_with_copies_solver {
  using options_type = evict_options;                ///< The options of this solver.
  static constexpr std::string_view name = "evict";  ///< In tables and progress reports: that of `evict`.

  /// Returns the best schedule found within the budgets of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const evict_options& options = {}) const;
};
/// The solver as a function object: `evict_with_copies(p, options)`.
inline constexpr evict_with_copies_solver evict_with_copies{};

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/impl/evict_with_copies.hpp"
#endif
