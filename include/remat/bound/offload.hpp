// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE {

/// Options of `offload_bound`.
struct offload_bound_options {
  /// The largest number of moments (first runs of operations) that are tried; 0: all. More moments never lower the
  /// bound.
  std::uint32_t moments = 24;
  /// The largest number of maximum flows at one moment, at least 1. With releases, for each case of a moment.
  std::uint32_t flows = 40;
  /// How many groups of tensors, by the time when they can leave and by the time when they must be back, are told apart
  /// in each direction: 1 to 8. 1 is the plain form. More groups may give more on small graphs, where a few copies
  /// decide, and take up to `releases`² times as many flows. Graphs of more than 2,000 operations always have the
  /// plain form.
  std::uint32_t releases = 4;
  /// Nodes of branch and bound at each of the four best moments, where the tensors are whole: each is on the device, on
  /// the host, or made again. 0: no branch and bound.
  std::uint32_t branch_nodes = 0;
  bool want_choice = true;  ///< fill in `choice_time` and what follows it in the result; takes one more flow
  run_control run{};        ///< `stop`, `time_limit` and `work_limit` end the search; the others are not used
};

/// A proven lower bound on the time of every schedule of a problem with a link, or the proof that there is none.
struct offload_bound_result {
  double lower_bound = 0;              ///< a bound on the time; infinite if infeasible
  double delay = 0;                    ///< `lower_bound` less the time of the needed operations
  bool infeasible = false;             ///< proven; `least_memory` names the operation and the bytes that it needs
  least_memory_result least_memory{};  ///< the largest memory bound that is known
  op_id moment{};                      ///< the operation whose first run gives the bound, if `delay` > 0
  std::int64_t working_set = 0;        ///< bytes of the moment's operation itself
  /// The multiplier a of the time of the operations before the moment; 1 − a is that of the copies to the host.
  double before = 1;
  /// The multiplier b of the time of the operations after the moment; 1 − b is that of the copies back. It is also the
  /// price of a unit of time of recomputation.
  double after = 1;
  double multiplier = 0;       ///< λ, the price of a byte on the device: about the time that one more byte saves
  double host_multiplier = 0;  ///< the price of a byte of the host's budget; 0 if that is unlimited
  /// The least time at the moment that a choice within both budgets was found to take, if nothing else is in its way.
  /// The largest bound of this kind at this moment lies between `lower_bound` and `choice_time`. 0, like all that
  /// follows up to `moments_tried`, if `want_choice` is false, if `delay` is 0, if no choice within both budgets was
  /// met, or if the search was stopped before.
  double choice_time = 0;
  double again_time = 0;               ///< the time of the operations that the choice runs again after the moment
  std::int64_t device_bytes = 0;       ///< the bytes of the choice's resident tensors, without `working_set`
  std::int64_t host_bytes = 0;         ///< the bytes of the tensors that the choice has on the host alone: H
  std::vector<tensor_id> saved{};      ///< the resident tensors of the choice beside the working set, ascending
  std::vector<tensor_id> offloaded{};  ///< the tensors that the choice has on the host alone, ascending
  std::vector<op_id> again{};          ///< the operations that the choice runs again, ascending
  std::uint32_t moments_tried = 0;     ///< first runs of operations that were tried
  std::uint32_t flows = 0;             ///< maximum flows that were run
};

/// Returns a lower bound on the time of every schedule of `p` within both of its budgets, where tensors may be kept,
/// computed again, or copied to the host over the link of `p`.
///
/// Take the moment when an operation k runs for the first time. Each tensor that is read later and was made before is
/// then on the device, only on the host, or made again later. A tensor on the host was copied out before the moment,
/// and is copied back after it. So the part of the schedule up to the moment takes at least the time of the operations
/// that have run, and at least the time of the copies out; the rest takes at least the time of all runs after the
/// moment, and at least the time of the copies in. Both maxima are relaxed to weighted means, and the budgets to prices
/// on bytes. For fixed multipliers, the least over all choices is a minimum cut. As a function of the multipliers, the
/// bound is concave and piecewise linear; Kelley's cutting planes search for its maximum. The result is the largest
/// bound over moments and multipliers.
///
/// With a slow link the bound is that of `turnaround_bound` at one moment, up to rounding and the limit on flows; with
/// a fast one it is the time of the needed operations. With `releases`, the result also counts that a copy out cannot
/// begin before its tensor is made, and that what reads a tensor follows the copy back. With `branch_nodes`, tensors
/// are whole; on tiny graphs the bound is then mostly the optimum.
///
/// Proofs: docs/bounds.md, section 10. Every value that is tried is a bound, so limits make it smaller, never wrong.
/// Rounding never raises it. A flow takes O(operations + reads and writes) time for each of its waves, of which it
/// needs a few in practice. Polls before each wave of a flow, and counts `work_of::flow` for each flow. A search that
/// is stopped returns the bound so far. Throws `bad_argument` if the problem has no link, or if `flows` or `releases`
/// is out of its range.
///
///     const problem p = problem(graph, roofline_cost{}, budget).with_link({.out = 12e9, .in = 12e9});
///     const offload_bound_result r = offload_bound(p);
[[nodiscard]] offload_bound_result offload_bound(const problem& p, const offload_bound_options& options = {});

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/bound/impl/offload.hpp"
#endif
