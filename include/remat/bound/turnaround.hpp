// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/bound/least_memory.hpp"
#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"

namespace remat {

/// Options of `turnaround_bound` and `turnaround_analysis`.
struct turnaround_options {
  /// Most moments (first runs of operations) that are tried for one budget; 0: all. More moments never lower the bound.
  std::uint32_t moments = 24;
  /// Nodes of branch and bound at each of the four best moments; they close the gap between a price of bytes and whole
  /// tensors (`find_moment_optimum`). 0: no branch and bound.
  std::uint32_t branch_nodes = 0;
  bool want_saved = true;  ///< fill in `choice`, `saved` and `again`; takes one more flow
  run_control run{};       ///< `stop` and `time_limit` end the search; the other fields are not used
};

/// A proven lower bound on the time of every schedule within a budget, or the proof that there is no such schedule.
struct turnaround_result {
  double lower_bound = 0;              ///< on the time; infinite where infeasible
  double recomputation = 0;            ///< the part of `lower_bound` above the time of the needed operations
  bool infeasible = false;             ///< proven; `least_memory` names the operation and the bytes that it needs
  least_memory_result least_memory{};  ///< the largest memory bound that the search has met
  op_id moment{};                      ///< the operation whose first run gives the bound, where `recomputation` > 0
  double multiplier = 0;               ///< the price of a byte there: about the time that one more byte saves
  std::int64_t working_set = 0;        ///< bytes of the moment's operation itself
  /// The cost of the best choice within the budget at that moment. Solvers may start from the choice. The least time of
  /// any choice lies between `recomputation` and `choice.time`. Empty, like `saved` and `again`, where `want_saved` is
  /// false or the search was stopped before.
  detail::moment_choice choice{};
  std::vector<tensor_id> saved{};   ///< the resident tensors of that choice beside the working set, ascending
  std::vector<op_id> again{};       ///< the operations that the choice runs again, ascending
  std::uint32_t moments_tried = 0;  ///< first runs of operations that were tried
  std::uint32_t flows = 0;          ///< maximum flows that were run
};

namespace detail::turnaround {

/// The result of one flow: for every budget, value − price × budget is a lower bound on the recomputation.
struct line {
  std::uint32_t moment;
  double price, value;
};

/// The state of a `turnaround_analysis`.
struct analysis_state {
  explicit analysis_state(const remat::problem& p);

  remat::problem problem;
  moment_cut cut;
  least_memory_result floor;           // of the working sets and the end of the training step
  std::vector<std::int64_t> listed;    // memory at each needed operation in the listed order
  std::vector<double> producers_time;  // of a tensor; infinite where a producer must not run twice
  bool has_once = false;               // some operation must not run twice
  std::vector<line> lines;             // from all budgets so far
};

}  // namespace detail::turnaround

/// The turnaround bound for one training step under any number of budgets.
///
/// Take the moment when an operation k runs for the first time. `moment_cut` gives the least of (time of the operations
/// that must run again + price × resident bytes) over all choices of resident tensors at that moment. This value less
/// price × (budget − working set of k) is a lower bound on the recomputation of every schedule within the budget, for
/// every price ≥ 0 (weak Lagrangian duality). As a function of the price, the bound is concave and piecewise linear.
/// Each flow gives its value at a price and the line through it; the next price is where the lines on both sides of the
/// optimum meet. The result is the largest bound over prices and moments.
///
/// Moments at which the listed order fits the budget give no bound above 0 and are left out. The first moment is the
/// one where the listed order holds most bytes. The following ones are chosen in alternation by two rules:
///  - the highest estimate: the sum over the tensors that the listed order holds, each at its bytes × price or the time
///    of its producers, whichever is lower, corrected by the errors of the estimate at the nearest tried moments;
///  - the largest part of the bytes beside the working set that the listed order has to drop.
/// Most moments are given up after one flow, when the two known lines show that they cannot win. The lines of earlier
/// budgets give the start for the next budget.
///
/// Proofs: docs/bounds.md. Rounding never raises the bound: flows are integers, with times rounded down to 2^−50 of
/// their sum, so the bound loses at most operations × 2^−50 of the time that can be recomputed.
/// A flow takes O(operations + reads and writes) time for each of its waves, of which it needs a few in practice.
/// Polls before each wave of a flow. A search that is stopped returns the bound so far.
class turnaround_analysis {
 public:
  /// Shares the arrays of `p`; the budget of `p` is not used. O(operations + reads and writes) time.
  explicit turnaround_analysis(const problem& p) : state_(p) {}

  /// Returns the bound for a budget in bytes.
  [[nodiscard]] turnaround_result bound(std::int64_t budget, const turnaround_options& options = {});

 private:
  detail::turnaround::analysis_state state_;
};

/// Returns the turnaround bound for the budget of `p`. See `turnaround_analysis`.
[[nodiscard]] turnaround_result turnaround_bound(const problem& p, const turnaround_options& options = {});

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/bound/impl/turnaround.hpp"
#endif
