// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>

#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace REMAT_NAMESPACE {

/// The edges of an operation graph.
enum class operation_edges : std::uint8_t {
  reads,  ///< edges join an operation and the operations that make its inputs
  moral   ///< also between any two operations that make inputs of one operation
};

/// The operations of a training step as an undirected graph: vertex i is operation i. The moral graph is the one that
/// Kumar et al. take. \cite kumar2019twremat
///
/// A tensor that is always resident adds no edge. If several operations add to one tensor, each reader of the tensor is
/// adjacent to all of them. O(operations + sum over operations of (makers of its inputs)²) time and O(edges) memory
/// when moral.
[[nodiscard]] undirected_graph operation_graph(const flat_graph& graph, operation_edges which = operation_edges::moral);

/// \overload
///
/// The operation graph of the problem's flat graph.
[[nodiscard]] inline undirected_graph operation_graph(const problem& p,
                                                      operation_edges which = operation_edges::moral) {
  return operation_graph(p.graph(), which);
}

/// Options of `twremat`.
struct twremat_options {
  /// A tree decomposition of `operation_graph(p)`, for instance from `decompose`. Without one, several are made, and
  /// the one with the cheapest schedule is chosen.
  std::optional<tree_decomposition> tree{};
  /// \name Settings (`records` says what they are)
  /// @{
  /// Separator trees that are run, with four shares of the budget each. Empty: seven, and then up to a hundred, until
  /// the solve has taken about a second (counted in work, so the answer depends on the seed alone), but at least 21 if
  /// none gives a schedule. With `tree` or `by_width`, at most three: one for each weight that separators balance.
  std::optional<std::uint32_t> attempts{};
  bool by_width = false;
  /// If the schedule of a recursion is over the budget, the separators hold fewer tensors
  /// (`separator_recursion::hold_less`). In the paper they always hold all.
  bool hold_less = true;
  std::uint32_t retain_rounds = 8;
  /// @}
  improvement improve{};  ///< the improvement after the own method: none, or `by_refinement` (remat/method/refined.hpp)
  run_control run{};      ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() {
    using o = twremat_options;
    return std::tuple{
        option("attempts", &o::attempts, "So many separator trees are run; the cheapest schedule is the answer.")
            .from(1)
            .fast(7)
            .paper(1),
        option("by_width", &o::by_width,
               "Take the tree decomposition of least width, not the one with the cheapest schedule.")
            .paper(true),
        option("hold_less", &o::hold_less, "Let separators hold fewer tensors if a schedule is over the budget.")
            .paper(false),
        option("retain_rounds", &o::retain_rounds, "At most so many rounds spend the memory that a schedule leaves.")
            .paper(0)};
  }
};

/// TwRemat \cite kumar2019twremat: recursion over nested separators (`separator_recursion`), which a tree decomposition
/// of the operation graph gives. A part is taken apart only if running it in the listed order does not fit. The memory
/// that is left over buys time: recomputations are removed if their outputs can be held instead (`retention`). The
/// schedule is within the budget. Nothing is evicted, unless `improve` is set.
///
/// The tree is chosen by the time of the schedule. The trees are those of elimination orders (least fill, least degree,
/// both, sparsest, maximum cardinality), of `decompose` and of nested dissection; later attempts break ties
/// differently, and balance their separators by bytes or by operations in place of bytes and time. Each separator tree
/// is run under several shares of the budget: under a smaller one the recursion takes more apart, and leaves more
/// memory to retention. A schedule over the budget makes the separators hold fewer tensors, and the recursion runs
/// again.
///
/// Differs from the paper: sizes, times, workspace, operations with several outputs (tensors are freed one by one),
/// tensors of several producers, operations that may run only once (their outputs stay until no call can read them),
/// the budget steers the recursion in place of a depth, and the choice of the tree.
///
/// Heuristic; `lower_bound` is proven (`prove`). With width w and unit sizes: peak O(w log n) and length O(n^log w) at
/// worst. A recursion with 8 times the needed time is given up; from the second tree on, while there is no schedule,
/// one with 64 times. `run.seed` and a work limit decide the answer; `run.threads` is used by `improve` alone.
/// Throws `bad_argument` if `options.tree` is no tree decomposition of the operation graph.
/// Cancellation: polled every fraction of a millisecond in the recursion, and in retention.
///
/// `solution::by`: "twremat", then "/retain" if retention changed the schedule; with `improve` also
/// "twremat/refined/…".
///
/// `statistics.own`, of the method's own schedule:
/// - `tree`: min_fill, min_degree, maximum_cardinality, decompose, fill_and_degree, sparsest, dissection or given;
///   `width`; `balance`: what its separators balance (bytes_and_time, bytes, operations);
/// - `separator_depth`: the most separators inside one another; `recursion_depth`: how many of these were taken apart;
///   `budget_share`: the share of the budget that the recursion got; `held_less`: tensors of separators that it did not
///   hold throughout;
/// - `attempts`: separator trees run; `recursions`: runs over all of them;
/// - `time_before_retain`, `time_saved_by_retain`: in the cost model's unit; `length`: computes / operations;
/// - `critical_path`: of the schedule, on as many streams as it can use; `listed_critical_path`: of the listed order;
/// - `repaired`: true if `improve` starts from a repaired schedule that was over the budget;
/// - `trees`: for each attempt `tree`, `seed`, `balance`, `width`, `separator_depth`, `recursions`, `schedules` (within
///   the budget) and `time` (the least).
/// With `improve` also `own_time`, `own_peak_bytes` and `own_by`: what the method found by itself.
struct twremat_solver {
  using options_type = twremat_options;                ///< The options of this solver.
  static constexpr std::string_view name = "twremat";  ///< The solver's name in tables and progress reports.

  /// Returns the best schedule found within the budget of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const twremat_options& options = {}) const;
};
/// The solver as a function object: `twremat(p, options)`.
inline constexpr twremat_solver twremat{};

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/twremat/impl/twremat.hpp"
#endif
