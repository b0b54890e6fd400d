// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat::detail {

/// A schedule that can be edited and keeps its memory exact after every edit.
///
/// The computes are the *nodes* of a doubly linked list. Each tensor has the list of its *events* in the order of the
/// schedule: writes (runs of its producer) and reads. A tensor is live from a write to the last read before the next
/// write. So frees need no nodes: each is as early as possible. `gap(x)` is the number of bytes that are live from node
/// x to the next node. While a node runs, the gap before it, its own outputs and its workspace are in use.
///
/// An edit changes gaps only between neighbouring events of the tensors that the compute reads and writes, so its time
/// depends on the number of nodes there and not on the length of the schedule. Every edit is recorded in a journal and
/// can be undone.
///
/// Operations that write a tensor of several producers, and operations that must run once, are never inserted or
/// removed: their runs stay as they are in the schedule.
class timeline {
 public:
  using node = std::uint32_t;      ///< A compute of the schedule.
  static constexpr node head = 0;  ///< the node before the first compute; it runs nothing
  static constexpr node tail = 1;  ///< the node behind the last compute; it runs nothing
  /// Marks the absence of a node.
  static constexpr node none = std::numeric_limits<node>::max();

  /// `p` must outlive the timeline.
  explicit timeline(const problem& p);

  /// Replaces the schedule by a legal one, which may exceed the budget. The nodes are then numbered 2, 3, … in their
  /// order. O(length) time.
  void load(const schedule& plan);

  /// The operations of the computes, in order.
  [[nodiscard]] std::vector<std::uint32_t> computes() const;

  /// The sum of the times of all computes.
  [[nodiscard]] double time() const noexcept { return time_; }
  /// The sum over the computes of the bytes by which each exceeds the budget. 0: the schedule fits.
  [[nodiscard]] std::int64_t excess() const noexcept { return excess_; }
  /// The present budget in bytes.
  [[nodiscard]] std::int64_t budget() const noexcept { return budget_; }
  /// The sum of the gaps: how many bytes the schedule holds for how many computes.
  [[nodiscard]] double area() const noexcept { return area_; }
  /// A node that exceeds the budget, or `none`. Amortised O(1) time; O(length) after `load` and `set_budget`.
  [[nodiscard]] node violated();
  /// The bytes by which node `x` exceeds the budget, at least 0. Precondition: it is not the head.
  [[nodiscard]] std::int64_t over_budget(node x) const noexcept { return over(x, gap_[prev_[x]]); }

  /// Replaces the budget, in bytes. O(length) time.
  void set_budget(std::int64_t bytes);

  /// One read or write of a tensor.
  struct event {
    node at;     ///< the compute; the tail for a final output
    bool write;  ///< true: the compute writes the tensor; false: reads it
  };
  /// The node behind `x`. Precondition: it is not the tail.
  [[nodiscard]] node next(node x) const noexcept { return next_[x]; }
  /// The node before `x`. Precondition: it is not the head.
  [[nodiscard]] node previous(node x) const noexcept { return prev_[x]; }
  /// The operation that node `x` runs. Precondition: it is neither the head nor the tail.
  [[nodiscard]] std::uint32_t operation(node x) const noexcept { return op_[x]; }
  /// Whether node `x` stands before node `y`. O(1) time.
  [[nodiscard]] bool precedes(node x, node y) const noexcept { return label_[x] < label_[y]; }
  /// Whether node `x` is in the list.
  [[nodiscard]] bool alive(node x) const noexcept { return next_[x] != none; }
  /// All nodes have smaller numbers.
  [[nodiscard]] std::size_t node_limit() const noexcept { return op_.size(); }
  /// The bytes that are live from node `x` to the next node.
  [[nodiscard]] std::int64_t gap(node x) const noexcept { return gap_[x]; }
  /// Bytes in use while node `x` runs. Precondition: it is not the head.
  [[nodiscard]] std::int64_t memory(node x) const noexcept { return gap_[prev_[x]] + node_need_[x]; }
  /// Whether runs of operation `o` may be inserted and removed.
  [[nodiscard]] bool rerunnable(std::uint32_t o) const noexcept { return rerunnable_[o] != 0; }
  /// The reads and writes of tensor `t`, in the order of the schedule. An edit makes the span invalid.
  [[nodiscard]] std::span<const event> events(std::uint32_t t) const noexcept { return events_[t]; }
  /// The graph of the problem.
  [[nodiscard]] const flat_graph& graph() const noexcept { return *graph_; }

  /// The index of the first event of `t` at or after node `x`. O(log events) time.
  [[nodiscard]] std::size_t first_event_from(std::uint32_t t, node x) const noexcept {
    const auto& list = events_[t];
    const std::uint64_t label = label_[x];
    if (list.size() <= 12) {
      std::size_t i = 0;
      while (i < list.size() && label_[list[i].at] < label) ++i;
      return i;
    }
    return static_cast<std::size_t>(
        std::partition_point(list.begin(), list.end(), [&](const event& e) { return label_[e.at] < label; }) -
        list.begin());
  }

  /// Whether `t` is live across the gap before node `x`.
  [[nodiscard]] bool live_before(std::uint32_t t, node x) const noexcept {
    const std::size_t i = first_event_from(t, x);
    return i > 0 && i < events_[t].size() && !events_[t][i].write;
  }

  /// Whether node `x` can be removed: every read of its outputs has an earlier write.
  [[nodiscard]] bool removable(node x) const noexcept {
    if (!rerunnable_[op_[x]]) return false;
    for (const std::uint32_t t : graph_->outputs[op_[x]])
      if (events_[t].front().at == x && events_[t].size() > 1) return false;
    return true;
  }

  /// Whether nobody reads what node `x` writes, and the node can be removed.
  [[nodiscard]] bool unread(node x) const noexcept;

  /// Whether `t` can be held within the budget from its last event before `x` until `x`. False also where more than
  /// `steps` nodes are in between. Precondition: `t` has an event before `x`.
  [[nodiscard]] bool extends(std::uint32_t t, node x, std::size_t steps) const noexcept;

  using mark = std::size_t;  ///< A state to which `undo` can return.
  /// The present state, for `undo`.
  [[nodiscard]] mark now() const noexcept { return journal_.size(); }
  /// Makes all edits final: clears the journal.
  void keep();
  /// Undoes all edits after `m`.
  void undo(mark m);

  /// Inserts a run of `o` right before node `before`, and returns the new node. Preconditions: `rerunnable(o)`, and all
  /// its inputs are written before.
  node insert(std::uint32_t o, node before);

  /// Removes node `x`. Precondition: `removable(x)`.
  void remove(node x);

  /// Whether node `x` may stand right before node `before`: its inputs are written by then, and the outputs that only
  /// it writes are read only after it. False for operations that write tensors of several producers.
  [[nodiscard]] bool movable(node x, node before) const noexcept;

  /// Moves node `x` right before `before`. Precondition: `movable(x, before)`.
  void move(node x, node before);

 private:
  struct change {
    node at;
    node after;  // the neighbour of a removed node
    bool inserted;
    bool created;  // inserted as a new node, not moved
  };

  void clear();
  node new_node(std::uint32_t o);
  void measure_gaps();

  [[nodiscard]] std::int64_t over(node x, std::int64_t gap_before) const noexcept {
    const std::int64_t bytes = gap_before + node_need_[x] - budget_;
    return bytes > 0 ? bytes : 0;
  }

  void link(node x, node after);
  void relabel();
  /// Adds `bytes` to the gaps from node `from` up to the one before `to`.
  void add(node from, node to, std::int64_t bytes);
  void put_in(node x, node after);
  void take_out(node x);

  const flat_graph* graph_;
  std::int64_t budget_;
  std::vector<std::uint8_t> rerunnable_;
  std::vector<std::int64_t> need_;  // of an operation: outputs and workspace

  std::vector<std::uint32_t> op_;
  std::vector<node> prev_, next_, free_;
  std::vector<std::uint64_t> label_;  // ascending along the list
  std::vector<std::int64_t> gap_, node_need_;
  std::vector<std::vector<event>> events_;
  std::int64_t excess_ = 0;
  double time_ = 0, area_ = 0;
  std::vector<change> journal_;
  std::vector<node> exceeding_;  // nodes that have exceeded the budget; some of them no longer do
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/refine/impl/timeline.hpp"
#endif
