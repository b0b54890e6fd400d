// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/timeline.hpp"

namespace remat::detail {

/// The moves of refinement on one timeline.
///
/// *Retain*: a recomputation is removed, and its results are held from their last use on instead. Where that breaks the
/// budget, it is *repaired*: tensors that lie idle there are dropped and recomputed before their next use, the cheapest
/// first, until the schedule fits. *Shift*: a compute takes another place.
///
/// A move that makes the schedule slower is accepted with the probability of simulated annealing at `temperature`.
class refine_moves {
 public:
  using node = timeline::node;  ///< A compute of the schedule.

  /// `plan` must outlive this object; the moves keep it legal and within its budget.
  refine_moves(timeline& plan, std::uint64_t seed);

  double temperature = 0;         ///< in units of time; 0: no move makes the schedule slower
  std::size_t most_repairs = 12;  ///< tensors that one repair may drop

  /// Called once per `poll_stride` steps of a repair's search. If it returns true, the repair gives up, and its move is
  /// undone. Empty: never.
  std::function<bool()> must_stop{};
  /// Steps of a repair's search between two calls of `must_stop`.
  static constexpr std::uint32_t poll_stride = 4096;

  /// Tries one random move. Returns whether the schedule changed.
  bool random_move();

  /// Removes node `x` and repairs the budget. Returns whether the result was accepted; otherwise the schedule is as it
  /// was.
  bool retain(node x);

  /// Drops idle tensors until the schedule fits the budget. Returns false, with some tensors dropped, where that takes
  /// more than `most_repairs` tensors or makes the schedule slower than `allowed`.
  bool repair(double allowed);

 private:
  /// Counts steps of a search. Returns whether `must_stop` has ended the repair.
  bool tick(std::uint32_t steps = 1);

  /// By how much the next move may make the schedule slower.
  double random_tolerance();
  node random_recomputation();

  /// After the removal of a run of `o`: removes the runs whose results only it read, and so on.
  void remove_unread_inputs(std::uint32_t o);

  /// The time to recompute `t` before node `y`, with the ancestors that are not live there; infinite above `most`.
  double recompute_time(std::uint32_t t, node y, double most);

  /// Drops a tensor that lies idle while node `v` runs, and recomputes it before its next use.
  bool drop_across(node v, double allowed);

  /// Inserts the computes that make `t` before node `y`. Marks them with the stamp, so that a second reader of their
  /// results does not recompute them again.
  bool recompute(std::uint32_t t, node y, std::size_t depth);

  /// Moves a random compute to a place near by. Accepted where the schedule holds less memory over time, or by chance.
  bool random_shift();

  timeline& plan_;
  const flat_graph& graph_;
  random_source random_;
  std::vector<std::uint32_t> droppable_;  // tensors, the largest first
  std::vector<std::uint32_t> stack_, seen_;
  std::uint32_t stamp_ = 0, steps_ = 0;
  bool stopped_ = false;
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/refine/impl/moves.hpp"
#endif
