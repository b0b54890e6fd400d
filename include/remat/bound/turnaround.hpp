// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE {

namespace detail {
struct moment_chain;
struct turnaround_state;
/// The flows of a bound, times the operations of its graph, that are one unit of work: some microseconds.
inline constexpr std::uint64_t flow_operations_per_work = 16;

/// Counts the flows of a bound as work, at most all that is left: a bound at one moment ends by itself, not at a limit
/// of work.
inline void count_flows(std::uint64_t flows, std::uint32_t operations, run_clock& clock) {
  clock.work(std::min(flows * operations / flow_operations_per_work, clock.work_left()));
}
}  // namespace detail

/// Options of `turnaround_bound` and `turnaround_analysis`.
struct turnaround_options {
  /// The largest number of moments (first runs of operations) that are tried for one budget; 0: all. More moments never
  /// lower the bound.
  std::uint32_t moments = 24;
  /// Nodes of branch and bound at each of the four best moments. They close the gap between a price of bytes, which
  /// splits tensors, and whole tensors. 0: no branch and bound.
  std::uint32_t branch_nodes = 0;
  /// The number of first runs among which chains of several moments are searched for. A chain counts operations that
  /// must run more than twice, so it raises the bound of tight budgets, for some thousand flows and often far more.
  /// 0, and graphs of more than 20,000 operations: none.
  std::uint32_t chain_moments = 0;
  bool want_saved = true;  ///< fill in `choice_time`, `choice_bytes`, `saved` and `again`; takes one more flow
  /// `stop` and `time_limit` end the search, and `work_limit` that for chains: a unit is a flow of 16 operations. The
  /// other fields are not used.
  run_control run{};
};

/// A proven lower bound on the time of every schedule within a budget, or the proof that there is no such schedule.
struct turnaround_result {
  double lower_bound = 0;              ///< a bound on the time; infinite if infeasible
  double recomputation = 0;            ///< `lower_bound` less the time of the needed operations
  bool infeasible = false;             ///< proven; `least_memory` names the operation and the bytes that it needs
  least_memory_result least_memory{};  ///< the largest memory bound that the search has met
  op_id moment{};  ///< the operation whose first run gives the best bound of one moment, if `recomputation` > 0
  /// The operations whose first runs give the bound, in order, if several together give more than one; otherwise empty.
  std::vector<op_id> chain{};
  std::shared_ptr<const detail::moment_chain> links{};  ///< the chain with its rates, for `exact`
  double multiplier = 0;         ///< the price of a byte there: about the time that one more byte saves
  std::int64_t working_set = 0;  ///< bytes of the moment's operation itself
  /// The time of the operations that the best choice within the budget runs again after that moment. Solvers may start
  /// from this choice. Without a chain, the least time of any choice lies between `recomputation` and `choice_time`. 0,
  /// like `choice_bytes`, if `want_saved` is false or the search was stopped before; then `saved` and `again` are
  /// empty.
  double choice_time = 0;
  std::int64_t choice_bytes = 0;    ///< the bytes of that choice's resident tensors, without `working_set`
  std::vector<tensor_id> saved{};   ///< the resident tensors of that choice beside the working set, ascending
  std::vector<op_id> again{};       ///< the operations that the choice runs again, ascending
  std::uint32_t moments_tried = 0;  ///< first runs of operations that were tried
  std::uint32_t flows = 0;          ///< maximum flows that were run
};

/// The turnaround bound for one training step under any number of budgets.
///
/// The bound is one on schedules without copies to the host; the link of a problem is not looked at.
///
/// Take the moment when an operation k runs for the first time. A minimum cut gives the least of (time of the
/// operations that must run again + price × resident bytes) over all choices of resident tensors at that moment. This
/// value less price × (budget − working set of k) is a lower bound on the recomputation of every schedule within the
/// budget, for every price ≥ 0 (weak Lagrangian duality). As a function of the price, the bound is concave and
/// piecewise linear. Each flow gives its value at a price and the line through it; the next price is where the lines on
/// both sides of the optimum meet. The result is the largest bound over prices and moments.
///
/// A chain of moments cuts the schedule into segments, whose recomputations add up; prices of tensors tie neighbouring
/// segments together (`turnaround_options::chain_moments`).
///
/// Moments at which the listed order fits the budget give no bound above 0 and are left out. The first moment is the
/// one where the listed order holds most bytes. The following ones are chosen in alternation by two rules:
///  - the highest estimate: the sum over the tensors that the listed order holds, each at its bytes × price or the time
///    of its producers, whichever is lower, corrected by the errors of the estimate at the nearest tried moments;
///  - the largest fraction of the bytes beside the working set that the listed order has to drop.
/// Most moments are given up after one flow, when the two known lines show that they cannot win. The lines of earlier
/// budgets give the start for the next budget.
///
/// Proofs: docs/bounds.md. Rounding never raises the bound: flows are integers, with times rounded down to 2^−50 of
/// their sum, so the bound loses at most operations × 2^−50 of the time that can be recomputed.
/// A flow takes O(operations + reads and writes) time for each of its waves, of which it needs a few in practice.
/// Polls before each wave of a flow. A search that is stopped returns the bound so far. Copies share their lines, so
/// one thread at a time may use them.
class turnaround_analysis {
 public:
  /// Shares the arrays of `p`; the budget of `p` is not used. O(operations + reads and writes) time.
  explicit turnaround_analysis(const problem& p);

  /// Returns the bound for a budget in bytes.
  [[nodiscard]] turnaround_result bound(std::int64_t budget, const turnaround_options& options = {});
  /// A budget in bytes is a whole number.
  template <std::floating_point Number>
  turnaround_result bound(Number, const turnaround_options& = {}) = delete;  // a budget is whole bytes

 private:
  std::shared_ptr<detail::turnaround_state> state_;
};

/// Returns the turnaround bound for the budget of `p`. See `turnaround_analysis`. It holds for schedules without
/// copies: the link of `p` is ignored, and `offload_bound` is for problems that have one.
[[nodiscard]] turnaround_result turnaround_bound(const problem& p, const turnaround_options& options = {});

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/bound/impl/turnaround.hpp"
#endif
