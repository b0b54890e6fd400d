// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "remat/core/control.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace remat {

/// Options of `twremat`.
struct twremat_options {
  /// A tree decomposition of `operation_graph(p)`, for instance from `decompose`. Without one, those of min-fill
  /// elimination orders are used; every third attempt breaks ties differently.
  std::optional<tree_decomposition> tree{};
  /// Recursions that are run; the best schedule is the answer. If none fits the budget, up to six are tried.
  std::uint32_t attempts = 1;
  std::uint32_t retain_rounds = 2;  ///< `retain_options::rounds`
  run_control run{};                ///< Limits, seed, threads, progress.

  /// Calls `visit(name, field, text)` for each scalar option but those of `run`; `text` is one line for people.
  template <class Self, class Visit>
  static void visit_options(Self& self, Visit&& visit) {
    visit("attempts", self.attempts, "recursions that are run; the best schedule is the answer");
    visit("retain_rounds", self.retain_rounds, "rounds that spend the memory a schedule leaves; 0: none");
  }
};

/// TwRemat \cite kumar2019twremat: recursion over nested separators, which a tree decomposition of the operation graph
/// gives and which balance bytes and time. A part is taken apart only if running it in the listed order does not fit.
/// The memory that is left over buys time (`retain`). The schedule is within the budget.
///
///   make(part, targets): if the operations missing for the targets fit in the listed order, run them so. Otherwise,
///   for each needed operation v of the part's separator, in the listed order: make the inputs of v in the parts below,
///   run v, free these inputs. Then make the targets in the parts below. A tensor written by the separator is freed
///   after the last call that reads it.
///
/// Differs from the paper: sizes, times, workspace, operations with several outputs (tensors are freed one by one),
/// tensors of several producers, operations that may run only once (their outputs stay until no call can read them),
/// and the budget steers the recursion in place of a depth.
///
/// Heuristic; `lower_bound` is proven (`prove`). If the schedule of the recursion is over the budget, it is repaired
/// (`refine_moves::repair`); if that fails, `evict` is asked, and the message says so.
/// With width w and unit sizes: peak O(w log n) and length O(n^log w) at worst. `run.seed` and a work limit decide the
/// answer; `run.threads` is not used.
/// Throws `bad_argument` if `options.tree` is no tree decomposition of the operation graph.
/// Cancellation: polled every fraction of a millisecond in the recursion, after every four repairs, and before each
/// recomputation that `retain` looks at.
///
/// `solution::by`: "twremat", then "/repair" and "/retain" where these changed the schedule; "twremat/evict/…" for a
/// schedule of `evict`.
struct twremat_solver {
  using options_type = twremat_options;                ///< The options of this solver.
  static constexpr std::string_view name = "twremat";  ///< The solver's name in tables and progress reports.

  /// Returns the best schedule found within the budget of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const twremat_options& options = {}) const;
};
/// The solver as a function object: `twremat(p, options)`.
inline constexpr twremat_solver twremat{};

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/solver/impl/twremat.hpp"
#endif
