// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace REMAT_NAMESPACE::detail {

/// Operation → whether its runs may be inserted and removed: it may run twice, and alone writes its outputs.
inline std::vector<std::uint8_t> rerunnable_operations(const flat_graph& g) {
  std::vector<std::uint8_t> rerunnable(g.num_operations, 0);
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    const auto outputs = g.outputs[o];
    rerunnable[o] = g.once[o] == 0 && std::all_of(outputs.begin(), outputs.end(),
                                                  [&](std::uint32_t t) { return g.producers[t].size() == 1; });
  }
  return rerunnable;
}

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
  using node = std::uint32_t;                                     ///< A compute of the schedule.
  static constexpr node head = 0;                                 ///< a node before the first compute; it runs nothing
  static constexpr node tail = 1;                                 ///< a node after the last compute; it runs nothing
  static constexpr node none = std::numeric_limits<node>::max();  ///< stands for "no node"

  /// `p` must outlive the timeline.
  explicit timeline(const problem& p)
      : graph_(&p.graph()),
        budget_(p.budget()),
        rerunnable_(rerunnable_operations(*graph_)),
        need_(graph_->workspace.begin(), graph_->workspace.end()),
        events_(graph_->num_tensors) {
    for (std::uint32_t o = 0; o < graph_->num_operations; ++o)
      for (const std::uint32_t t : graph_->outputs[o]) need_[o] += graph_->bytes[t];
  }

  /// Replaces the schedule by a legal one, which may exceed the budget. The nodes are then numbered 2, 3, … in their
  /// order. O(length) time.
  void load(const schedule& plan) { load(computes_of(plan)); }
  /// \overload
  /// `computes`: those of a legal schedule.
  void load(std::span<const std::uint32_t> computes) {
    const flat_graph& g = *graph_;
    const schedule tidy = schedule_computes(g, computes);
    clear();
    std::vector<std::uint8_t> allocated(g.num_tensors, 0);
    for (const step& now : tidy.steps) {
      if (now.is_free()) {
        allocated[index(now.tensor())] = 0;
        continue;
      }
      const auto o = static_cast<std::uint32_t>(index(now.operation()));
      const node x = new_node(o);
      link(x, prev_[tail]);
      for (const std::uint32_t t : g.inputs[o]) events_[t].push_back({x, false});
      for (const std::uint32_t t : g.outputs[o]) {
        const bool adds = g.producers[t].size() > 1 && allocated[t];  // it adds to what another producer has written
        if (adds) node_need_[x] -= g.bytes[t];
        events_[t].push_back({x, !adds});
        allocated[t] = 1;
      }
    }
    for (const std::uint32_t t : g.final_outputs) events_[t].push_back({tail, false});
    measure_gaps();
  }

  [[nodiscard]] std::vector<std::uint32_t> computes() const {
    std::vector<std::uint32_t> operations;
    for (node x = next_[head]; x != tail; x = next_[x]) operations.push_back(op_[x]);
    return operations;
  }

  /// The sum of the times of all computes.
  [[nodiscard]] double time() const noexcept { return time_; }
  /// The sum over the computes of the bytes by which each exceeds the budget. 0: the schedule fits.
  [[nodiscard]] std::int64_t excess() const noexcept { return excess_; }
  /// The sum of the gaps: how many bytes the schedule holds for how many computes.
  [[nodiscard]] double area() const noexcept { return area_; }
  /// A node that exceeds the budget, or `none`. Amortised O(1) time; O(length) after `load`.
  [[nodiscard]] node violated() {
    if (excess_ == 0) {
      exceeding_.clear();
      return none;
    }
    while (!exceeding_.empty()) {
      const node x = exceeding_.back();
      if (alive(x) && x != head && over_budget(x) > 0) return x;
      exceeding_.pop_back();
    }
    node x = next_[head];
    while (over_budget(x) == 0) {
      if (x == tail) return none;
      x = next_[x];
    }
    exceeding_.push_back(x);
    return x;
  }

  /// The bytes by which node `x` exceeds the budget, at least 0. Precondition: it is not the head.
  [[nodiscard]] std::int64_t over_budget(node x) const noexcept { return over(x, gap_[prev_[x]]); }

  struct event {
    node at;     ///< the compute; the tail for a final output
    bool write;  ///< true: the compute writes the tensor; false: reads it
  };
  /// The node after `x`. Precondition: it is not the tail.
  [[nodiscard]] node next(node x) const noexcept { return next_[x]; }
  /// The node before `x`. Precondition: it is not the head.
  [[nodiscard]] node previous(node x) const noexcept { return prev_[x]; }
  /// The operation that node `x` runs. Precondition: it is neither the head nor the tail.
  [[nodiscard]] std::uint32_t operation(node x) const noexcept { return op_[x]; }
  /// True if node `x` stands before node `y`. O(1) time.
  [[nodiscard]] bool precedes(node x, node y) const noexcept { return label_[x] < label_[y]; }
  [[nodiscard]] bool alive(node x) const noexcept { return next_[x] != none; }
  /// All nodes have smaller numbers.
  [[nodiscard]] std::size_t node_limit() const noexcept { return op_.size(); }
  /// The bytes that are live from node `x` to the next node.
  [[nodiscard]] std::int64_t gap(node x) const noexcept { return gap_[x]; }
  /// Bytes in use while node `x` runs. Precondition: it is not the head.
  [[nodiscard]] std::int64_t memory(node x) const noexcept { return gap_[prev_[x]] + node_need_[x]; }
  /// True if runs of operation `o` may be inserted and removed.
  [[nodiscard]] bool rerunnable(std::uint32_t o) const noexcept { return rerunnable_[o] != 0; }
  /// The reads and writes of tensor `t`, in the order of the schedule. An edit makes the span invalid.
  [[nodiscard]] std::span<const event> events(std::uint32_t t) const noexcept { return events_[t]; }
  [[nodiscard]] const flat_graph& graph() const noexcept { return *graph_; }

  /// The index of the first event of `t` at or after node `x`. O(log events) time.
  [[nodiscard]] std::size_t first_event_from(std::uint32_t t, node x) const noexcept {
    const auto& list = events_[t];
    const std::uint64_t label = label_[x];
    const auto is_before = [&](const event& e) { return label_[e.at] < label; };
    std::size_t i = 0;
    if (list.size() > 12)  // a loop is faster for the shorter ones
      i = static_cast<std::size_t>(std::partition_point(list.begin(), list.end(), is_before) - list.begin());
    else
      while (i < list.size() && is_before(list[i])) ++i;
    return i;
  }

  /// True if `t` is live across the gap before node `x`.
  [[nodiscard]] bool live_before(std::uint32_t t, node x) const noexcept {
    const std::size_t i = first_event_from(t, x);
    return i > 0 && i < events_[t].size() && !events_[t][i].write;
  }

  /// True if node `x` can be removed: every read of its outputs has an earlier write.
  [[nodiscard]] bool removable(node x) const noexcept {
    if (!rerunnable_[op_[x]]) return false;
    for (const std::uint32_t t : graph_->outputs[op_[x]])
      if (events_[t].front().at == x && events_[t].size() > 1) return false;
    return true;
  }

  /// True if nobody reads what node `x` writes, and the node can be removed.
  [[nodiscard]] bool unread(node x) const noexcept {
    if (!rerunnable_[op_[x]]) return false;
    for (const std::uint32_t t : graph_->outputs[op_[x]]) {
      const std::size_t i = first_event_from(t, x);
      if (i + 1 < events_[t].size() && !events_[t][i + 1].write) return false;
    }
    return true;
  }

  /// True if `t` can be held within the budget from its last event before `x` until `x`. False also if more than
  /// `steps` nodes are in between. Precondition: `t` has an event before `x`.
  [[nodiscard]] bool extends(std::uint32_t t, node x, std::size_t steps) const noexcept {
    const std::size_t i = first_event_from(t, x);
    const node from = events_[t][i - 1].at;
    for (node y = prev_[x];; y = prev_[y]) {
      // Node x has not begun: only the nodes in between count.
      if (next_[y] != x && gap_[y] + node_need_[next_[y]] + graph_->bytes[t] > budget_) return false;
      if (y == from) return true;
      if (steps-- == 0) return false;
    }
  }

  /// Makes all edits final: clears the journal.
  void keep() {
    for (const change& c : journal_)
      if (!c.inserted && !alive(c.at)) free_.push_back(c.at);
    journal_.clear();
    // A node that was moved and then removed is in the journal more than once.
    std::sort(free_.begin(), free_.end());
    free_.erase(std::unique(free_.begin(), free_.end()), free_.end());
  }

  /// Undoes all edits since the last call of `keep` or `load`.
  void undo() {
    while (!journal_.empty()) {
      const change c = journal_.back();
      journal_.pop_back();
      if (c.inserted) {
        take_out(c.at);
        if (c.created) free_.push_back(c.at);
      } else {
        put_in(c.at, c.after);
      }
    }
  }

  /// Inserts a run of `o` right before node `before`, and returns the new node. Preconditions: `rerunnable(o)`, and all
  /// its inputs are written before.
  node insert(std::uint32_t o, node before) {
    const node x = new_node(o);
    put_in(x, prev_[before]);
    journal_.push_back({x, none, true, true});
    return x;
  }

  /// Removes node `x`. Precondition: `removable(x)`.
  void remove(node x) {
    journal_.push_back({x, prev_[x], false, false});
    take_out(x);
  }

  /// True if node `x` may stand right before node `before`: its inputs are written by then, and the outputs that only
  /// it writes are read only after it. False for operations that write tensors of several producers.
  [[nodiscard]] bool movable(node x, node before) const noexcept {
    if (x == before || next_[x] == before) return false;
    for (const std::uint32_t t : graph_->outputs[op_[x]])
      if (graph_->producers[t].size() != 1) return false;
    for (const std::uint32_t t : graph_->inputs[op_[x]]) {
      // A tensor of several producers: all of them have to come first, so x stays on the same side of every event.
      const std::size_t i = first_event_from(t, before);
      if (i == 0) return false;
      if (graph_->producers[t].size() != 1 && first_event_from(t, x) != i && first_event_from(t, x) + 1 != i)
        return false;
    }
    if (!precedes(x, before)) return true;
    for (const std::uint32_t t : graph_->outputs[op_[x]]) {
      // Reads that x would leave behind need an earlier write.
      const auto& list = events_[t];
      if (first_event_from(t, x) == 0 && list.size() > 1 && precedes(list[1].at, before)) return false;
    }
    return true;
  }

  /// Moves node `x` right before `before`. Precondition: `movable(x, before)`.
  void move(node x, node before) {
    journal_.push_back({x, prev_[x], false, false});
    take_out(x);
    put_in(x, prev_[before]);
    journal_.push_back({x, none, true, false});
  }

 private:
  struct change {
    node at;
    node after;  // the neighbour of a removed node
    bool inserted;
    bool created;  // inserted as a new node, not moved
  };

  static constexpr std::uint64_t max_stride = std::uint64_t{1} << 40;  // the largest distance between labels at the end

  void clear() {
    op_.assign(2, none);
    prev_.assign(2, none);
    next_.assign(2, none);
    label_.assign(2, 0);
    gap_.assign(2, 0);
    node_need_.assign(2, 0);
    next_[head] = tail;
    prev_[tail] = head;
    next_[tail] = tail;
    label_[tail] = std::numeric_limits<std::uint64_t>::max();
    free_.clear();
    for (auto& list : events_) list.clear();
    excess_ = 0;
    time_ = area_ = 0;
    exceeding_.clear();
    journal_.clear();
  }

  node new_node(std::uint32_t o) {
    if (free_.empty()) {
      op_.push_back(o);
      prev_.push_back(none);
      next_.push_back(none);
      label_.push_back(0);
      gap_.push_back(0);
      node_need_.push_back(need_[o]);
      return static_cast<node>(op_.size() - 1);
    }
    const node x = free_.back();
    free_.pop_back();
    op_[x] = o;
    node_need_[x] = need_[o];
    return x;
  }

  void measure_gaps() {
    const flat_graph& g = *graph_;
    // A tensor is live from an event to the next one if that is a read.
    std::vector<std::int64_t> difference(op_.size(), 0);
    for (std::uint32_t t = 0; t < g.num_tensors; ++t)
      for (std::size_t i = 0; i + 1 < events_[t].size(); ++i)
        if (!events_[t][i + 1].write) {
          difference[events_[t][i].at] += g.bytes[t];
          difference[events_[t][i + 1].at] -= g.bytes[t];
        }
    std::int64_t live = 0;
    for (node x = head; x != tail; x = next_[x]) {
      live += difference[x];
      gap_[x] = live;
      area_ += static_cast<double>(live);
      excess_ += over(next_[x], live);
      if (x != head) time_ += g.time[op_[x]];
    }
  }

  [[nodiscard]] std::int64_t over(node x, std::int64_t gap_before) const noexcept {
    return std::max<std::int64_t>(gap_before + node_need_[x] - budget_, 0);
  }

  void link(node x, node after) {
    const node before = next_[after];
    const std::uint64_t low = label_[after], high = label_[before];
    next_[x] = before;
    prev_[x] = after;
    next_[after] = x;
    prev_[before] = x;
    if (high - low < 2) return relabel();
    // A node at the end leaves labels for many after it; any other takes the middle.
    label_[x] = low + (before == tail ? std::min((high - low) / 2, max_stride) : (high - low) / 2);
  }

  void relabel() {
    std::uint64_t count = 1;
    for (node x = next_[head]; x != tail; x = next_[x]) ++count;
    const std::uint64_t stride = std::min(label_[tail] / (count + 1), max_stride);
    std::uint64_t label = 0;
    for (node x = next_[head]; x != tail; x = next_[x]) label_[x] = label += stride;
  }

  /// Adds `bytes` to the gaps from node `from` up to the one before `to`. Most of the time of a search goes here.
  void add(node from, node to, std::int64_t bytes) {
    // Sums in registers: through the members they would pass through memory at each node.
    const node* const next = next_.data();
    const std::int64_t* const need = node_need_.data();
    std::int64_t* const gap = gap_.data();
    const std::int64_t budget = budget_;
    std::int64_t excess = 0, count = 0;
    for (node x = from; x != to; ++count) {
      const node after = next[x];
      const std::int64_t before = gap[x] + need[after] - budget, now = before + bytes;
      gap[x] += bytes;
      if ((before > 0) | (now > 0)) {
        excess += std::max<std::int64_t>(now, 0) - std::max<std::int64_t>(before, 0);
        if (now > 0 && bytes > 0) exceeding_.push_back(after);
      }
      x = after;
    }
    excess_ += excess;
    area_ += static_cast<double>(bytes) * static_cast<double>(count);
  }

  /// Changes the gaps for a write of `t` by node `x` that comes (`bytes` > 0) or goes (`bytes` < 0), if the event at
  /// place `i` of the others, the next one, reads it: an event before supplies the read without that write.
  void change_supply(std::uint32_t t, std::size_t i, node x, std::int64_t bytes) {
    const auto& list = events_[t];
    if (i == list.size() || list[i].write) return;
    if (i > 0)
      add(list[i - 1].at, x, -bytes);
    else
      add(x, list[i].at, bytes);  // nothing else supplies that read
  }

  void put_in(node x, node after) {
    const std::uint32_t o = op_[x];
    const node before = next_[after];
    excess_ -= over(before, gap_[after]);
    link(x, after);
    gap_[x] = gap_[after];
    area_ += static_cast<double>(gap_[x]);
    if (over(x, gap_[after]) > 0) exceeding_.push_back(x);
    excess_ += over(x, gap_[after]) + over(before, gap_[x]);
    time_ += graph_->time[o];
    for (const std::uint32_t t : graph_->inputs[o]) {
      auto& list = events_[t];
      const std::size_t i = first_event_from(t, x);
      if (i == list.size() || list[i].write) add(list[i - 1].at, x, graph_->bytes[t]);
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), event{x, false});
    }
    for (const std::uint32_t t : graph_->outputs[o]) {
      auto& list = events_[t];
      const std::size_t i = first_event_from(t, x);
      change_supply(t, i, x, graph_->bytes[t]);
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), event{x, true});
    }
  }

  void take_out(node x) {
    const std::uint32_t o = op_[x];
    for (const std::uint32_t t : graph_->outputs[o]) {
      auto& list = events_[t];
      const std::size_t i = first_event_from(t, x);
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
      change_supply(t, i, x, -graph_->bytes[t]);
    }
    for (const std::uint32_t t : graph_->inputs[o]) {
      auto& list = events_[t];
      const std::size_t i = first_event_from(t, x);
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
      if (i == list.size() || list[i].write) add(list[i - 1].at, x, -graph_->bytes[t]);
    }
    const node before = next_[x], after = prev_[x];
    area_ -= static_cast<double>(gap_[x]);
    excess_ -= over(x, gap_[after]) + over(before, gap_[x]);
    next_[after] = before;
    prev_[before] = after;
    excess_ += over(before, gap_[after]);
    next_[x] = none;
    time_ -= graph_->time[o];
  }

  const flat_graph* graph_;
  std::int64_t budget_;
  std::vector<std::uint8_t> rerunnable_;
  std::vector<std::int64_t> need_;          // bytes of each operation's outputs and workspace
  std::vector<std::vector<event>> events_;  // each tensor's events

  std::vector<std::uint32_t> op_;
  std::vector<node> prev_, next_, free_;
  std::vector<std::uint64_t> label_;  // ascending along the list
  std::vector<std::int64_t> gap_, node_need_;
  std::int64_t excess_ = 0;
  double time_ = 0, area_ = 0;
  std::vector<change> journal_;
  std::vector<node> exceeding_;  // nodes that have exceeded the budget; some of them no longer do
};

/// The time beyond the needed operations, for each compute that could be removed: the scale on which one move changes
/// the time. O(computes).
[[nodiscard]] inline double time_per_recomputation(const timeline& plan) {
  std::size_t recomputations = 0;
  for (timeline::node x = plan.next(timeline::head); x != timeline::tail; x = plan.next(x))
    recomputations += plan.removable(x);
  const double excess = std::max(0.0, plan.time() - plan.graph().needed_time);
  return recomputations == 0 ? 0 : excess / static_cast<double>(recomputations);
}

}  // namespace REMAT_NAMESPACE::detail
