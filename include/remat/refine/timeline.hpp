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

namespace remat {

/// A schedule that can be edited, with its memory kept exact after every edit.
///
/// The computes are a doubly linked list of nodes. Every tensor has the list of its events, in the order of the
/// schedule: writes (a run of its producer) and reads. It is live from a write to the last read before the next write,
/// so frees need no nodes: they are always as early as they can be. `gap(x)` is the bytes that live across from node x
/// to the next; a node runs within gap(before it) + its own new outputs + its workspace. Inserting or removing a
/// compute changes gaps only between the neighbouring events of the tensors that it reads and writes, and takes time in
/// the number of nodes there, not in the length of the schedule. Every edit is journalled and can be undone.
///
/// Operations that write a tensor of several producers are never inserted nor removed; what a schedule does with them
/// stays.
class timeline {
 public:
  using node = std::uint32_t;
  static constexpr node head = 0, tail = 1;
  static constexpr node none = std::numeric_limits<node>::max();

  /// `p` must outlive the timeline.
  explicit timeline(const problem& p) : step_(&p.graph()), budget_(p.budget()) {
    const flat_graph& s = *step_;
    events_.resize(s.num_tensors);
    rerunnable_.assign(s.num_operations, 0);
    need_.assign(s.num_operations, 0);
    for (std::uint32_t o = 0; o < s.num_operations; ++o) {
      bool single = true;
      need_[o] = s.workspace[o];
      for (const std::uint32_t t : s.outputs[o]) {
        single = single && s.producers[t].size() == 1;
        need_[o] += s.bytes[t];
      }
      rerunnable_[o] = single && s.once[o] == 0;
    }
  }

  /// Takes over a legal schedule; it may be over the budget. O(length).
  void load(const schedule& plan) {
    const flat_graph& s = *step_;
    const schedule tidy = schedule_computes(s, computes_of(plan));
    clear();
    std::vector<std::uint8_t> allocated(s.num_tensors, 0);
    for (const auto& st : tidy.steps) {
      if (st.is_free()) {
        allocated[index(st.tensor())] = 0;
        continue;
      }
      const auto o = static_cast<std::uint32_t>(index(st.operation()));
      const node x = new_node(o);
      link(x, prev_[tail]);
      for (const std::uint32_t t : s.inputs[o]) events_[t].push_back({x, false});
      for (const std::uint32_t t : s.outputs[o]) {
        const bool joins = s.producers[t].size() > 1 && allocated[t];  // adds to what another producer began
        if (joins) node_need_[x] -= s.bytes[t];
        events_[t].push_back({x, !joins});
        allocated[t] = 1;
      }
    }
    for (const std::uint32_t t : s.final_outputs) events_[t].push_back({tail, false});
    // Gaps from the events: a tensor lives from an event to the next one if that is a read.
    std::vector<std::int64_t> change(op_.size(), 0);
    for (std::uint32_t t = 0; t < s.num_tensors; ++t)
      for (std::size_t i = 0; i + 1 < events_[t].size(); ++i)
        if (!events_[t][i + 1].write) {
          change[events_[t][i].at] += s.bytes[t];
          change[events_[t][i + 1].at] -= s.bytes[t];
        }
    std::int64_t live = 0;
    for (node x = head; x != tail; x = next_[x]) {
      live += change[x];
      gap_[x] = live;
      area_ += static_cast<double>(live);
      excess_ += over(next_[x], live);
      if (x != head) time_ += s.time[op_[x]];
    }
    journal_.clear();
  }

  /// The computes in order.
  [[nodiscard]] std::vector<std::uint32_t> computes() const {
    std::vector<std::uint32_t> operations;
    for (node x = next_[head]; x != tail; x = next_[x]) operations.push_back(op_[x]);
    return operations;
  }

  [[nodiscard]] double time() const noexcept { return time_; }
  /// Sum over the computes of the bytes by which they are over the budget; 0: the schedule fits.
  [[nodiscard]] std::int64_t excess() const noexcept { return excess_; }
  [[nodiscard]] std::int64_t budget() const noexcept { return budget_; }
  /// Sum of the gaps: bytes held over the whole schedule, counted in computes.
  [[nodiscard]] double area() const noexcept { return area_; }
  /// A node that is over the budget, or `none`. Amortised O(1), but O(length) where the budget was lowered.
  [[nodiscard]] node violated() {
    if (excess_ == 0) {
      hot_.clear();
      return none;
    }
    while (!hot_.empty()) {
      const node x = hot_.back();
      if (alive(x) && x != head && over(x, gap_[prev_[x]]) > 0) return x;
      hot_.pop_back();
    }
    for (node x = next_[head];; x = next_[x]) {
      if (over(x, gap_[prev_[x]]) > 0) {
        hot_.push_back(x);
        return x;
      }
      if (x == tail) return none;
    }
  }
  [[nodiscard]] std::int64_t over_budget(node x) const noexcept { return over(x, gap_[prev_[x]]); }

  /// O(length).
  void set_budget(std::int64_t bytes) {
    budget_ = bytes;
    excess_ = 0;
    for (node x = head; x != tail; x = next_[x]) excess_ += over(next_[x], gap_[x]);
  }

  // --- looking around ---
  struct event {
    node at;
    bool write;
  };
  [[nodiscard]] node next(node x) const noexcept { return next_[x]; }
  [[nodiscard]] node previous(node x) const noexcept { return prev_[x]; }
  [[nodiscard]] std::uint32_t operation(node x) const noexcept { return op_[x]; }
  [[nodiscard]] bool precedes(node x, node y) const noexcept { return label_[x] < label_[y]; }
  [[nodiscard]] bool alive(node x) const noexcept { return next_[x] != none; }
  [[nodiscard]] std::size_t node_limit() const noexcept { return op_.size(); }
  [[nodiscard]] std::int64_t gap(node x) const noexcept { return gap_[x]; }
  /// Bytes in use while node `x` runs. Precondition: it is not the head.
  [[nodiscard]] std::int64_t memory(node x) const noexcept { return gap_[prev_[x]] + node_need_[x]; }
  [[nodiscard]] bool rerunnable(std::uint32_t o) const noexcept { return rerunnable_[o] != 0; }
  [[nodiscard]] std::span<const event> events(std::uint32_t t) const noexcept { return events_[t]; }
  [[nodiscard]] const flat_graph& graph() const noexcept { return *step_; }

  /// Index of the first event of `t` at or after node `x`.
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

  /// Whether node `x` can go: every read of what it writes has an earlier write to fall back on.
  [[nodiscard]] bool removable(node x) const noexcept {
    if (!rerunnable_[op_[x]]) return false;
    for (const std::uint32_t t : step_->outputs[op_[x]])
      if (events_[t].front().at == x && events_[t].size() > 1) return false;
    return true;
  }

  /// Whether nobody reads what node `x` writes.
  [[nodiscard]] bool unread(node x) const noexcept {
    if (!rerunnable_[op_[x]]) return false;
    for (const std::uint32_t t : step_->outputs[op_[x]]) {
      const std::size_t i = first_event_from(t, x);
      if (i + 1 < events_[t].size() && !events_[t][i + 1].write) return false;
    }
    return true;
  }

  /// Whether `t` may live on from its last event before `x` up to `x` within the budget, looking at `steps` nodes at
  /// most. Precondition: there is an event before `x`.
  [[nodiscard]] bool extends(std::uint32_t t, node x, std::size_t steps) const noexcept {
    const std::size_t i = first_event_from(t, x);
    const node from = events_[t][i - 1].at;
    for (node y = prev_[x];; y = prev_[y]) {
      // x itself has not begun: only what runs between counts.
      if (next_[y] != x && gap_[y] + node_need_[next_[y]] + step_->bytes[t] > budget_) return false;
      if (y == from) return true;
      if (steps-- == 0) return false;
    }
  }

  // --- editing ---
  using mark = std::size_t;
  [[nodiscard]] mark now() const noexcept { return journal_.size(); }
  /// Forgets how to undo: the schedule as it is becomes the starting point.
  void keep() {
    for (const change& c : journal_)
      if (!c.inserted && !alive(c.at)) free_.push_back(c.at);
    journal_.clear();
    // A node that was moved more than once and then removed is in the journal more than once.
    std::sort(free_.begin(), free_.end());
    free_.erase(std::unique(free_.begin(), free_.end()), free_.end());
  }
  /// Undoes everything after `m`.
  void undo(mark m) {
    while (journal_.size() > m) {
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

  /// Inserts a run of `o` right before node `before`. Preconditions: `rerunnable(o)`, and all that it reads was written
  /// before. Returns the new node.
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

  /// Whether node `x` may stand right before node `before`: what it reads is written by then, and what it is the only
  /// one to write is read only after it. Only for nodes whose operation writes tensors of one producer.
  [[nodiscard]] bool movable(node x, node before) const noexcept {
    if (x == before || next_[x] == before) return false;
    for (const std::uint32_t t : step_->outputs[op_[x]])
      if (step_->producers[t].size() != 1) return false;
    for (const std::uint32_t t : step_->inputs[op_[x]]) {
      // Several producers: all of their contributions have to come first; keep to the same side of every event.
      const std::size_t i = first_event_from(t, before);
      if (step_->producers[t].size() != 1) {
        if (first_event_from(t, x) != i && first_event_from(t, x) + 1 != i) return false;
      }
      if (i == 0) return false;
    }
    for (const std::uint32_t t : step_->outputs[op_[x]]) {
      const std::size_t i = first_event_from(t, x);
      const auto& list = events_[t];
      if (label_[before] > label_[x]) {
        // Later: reads that would be left behind need an earlier write.
        if (i == 0 && i + 1 < list.size() && label_[list[i + 1].at] < label_[before]) return false;
      }
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
    node after;  // where a removed node stood
    bool inserted;
    bool created;  // and not there before
  };

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
    time_ = 0;
    area_ = 0;
    hot_.clear();
    journal_.clear();
  }

  node new_node(std::uint32_t o) {
    node x;
    if (!free_.empty()) {
      x = free_.back();
      free_.pop_back();
    } else {
      x = static_cast<node>(op_.size());
      op_.push_back(none);
      prev_.push_back(none);
      next_.push_back(none);
      label_.push_back(0);
      gap_.push_back(0);
      node_need_.push_back(0);
    }
    op_[x] = o;
    node_need_[x] = need_[o];
    return x;
  }

  [[nodiscard]] std::int64_t over(node x, std::int64_t gap_before) const noexcept {
    const std::int64_t bytes = gap_before + node_need_[x] - budget_;
    return bytes > 0 ? bytes : 0;
  }

  void link(node x, node after) {
    const node before = next_[after];
    const std::uint64_t low = label_[after], high = label_[before];
    next_[x] = before;
    prev_[x] = after;
    next_[after] = x;
    prev_[before] = x;
    if (high - low < 2) {
      relabel();
      return;
    }
    // Appending leaves room for as many again; in between, the middle.
    label_[x] = before == tail ? low + std::min<std::uint64_t>((high - low) / 2, std::uint64_t{1} << 40)
                               : low + (high - low) / 2;
  }

  void relabel() {
    std::uint64_t count = 1;
    for (node x = next_[head]; x != tail; x = next_[x]) ++count;
    const std::uint64_t stride = std::min<std::uint64_t>(label_[tail] / (count + 1), std::uint64_t{1} << 40);
    std::uint64_t label = 0;
    for (node x = next_[head]; x != tail; x = next_[x]) label_[x] = label += stride;
  }

  /// Adds `bytes` to the gaps from node `from` up to the one before `to`.
  void add(node from, node to, std::int64_t bytes) {
    for (node x = from; x != to;) {
      const node after = next_[x];
      excess_ -= over(after, gap_[x]);
      gap_[x] += bytes;
      area_ += static_cast<double>(bytes);
      if (const std::int64_t now = over(after, gap_[x]); now > 0) {
        excess_ += now;
        if (bytes > 0) hot_.push_back(after);
      }
      x = after;
    }
  }

  void put_in(node x, node after) {
    const std::uint32_t o = op_[x];
    const node before = next_[after];
    excess_ -= over(before, gap_[after]);
    link(x, after);
    gap_[x] = gap_[after];
    area_ += static_cast<double>(gap_[x]);
    if (over(x, gap_[after]) > 0) hot_.push_back(x);
    excess_ += over(x, gap_[after]) + over(before, gap_[x]);
    time_ += step_->time[o];
    for (const std::uint32_t t : step_->inputs[o]) {
      auto& list = events_[t];
      const std::size_t i = first_event_from(t, x);
      if (i == list.size() || list[i].write) add(list[i - 1].at, x, step_->bytes[t]);
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), event{x, false});
    }
    for (const std::uint32_t t : step_->outputs[o]) {
      auto& list = events_[t];
      const std::size_t i = first_event_from(t, x);
      if (i < list.size() && !list[i].write) {
        if (i > 0)
          add(list[i - 1].at, x, -step_->bytes[t]);
        else
          add(x, list[i].at, step_->bytes[t]);  // nothing supplied that read so far
      }
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), event{x, true});
    }
  }

  void take_out(node x) {
    const std::uint32_t o = op_[x];
    for (const std::uint32_t t : step_->outputs[o]) {
      auto& list = events_[t];
      const std::size_t i = first_event_from(t, x);
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
      if (i < list.size() && !list[i].write) {
        if (i > 0)
          add(list[i - 1].at, x, step_->bytes[t]);
        else
          add(x, list[i].at, -step_->bytes[t]);
      }
    }
    for (const std::uint32_t t : step_->inputs[o]) {
      auto& list = events_[t];
      const std::size_t i = first_event_from(t, x);
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
      if (i == list.size() || list[i].write) add(list[i - 1].at, x, -step_->bytes[t]);
    }
    const node before = next_[x], after = prev_[x];
    area_ -= static_cast<double>(gap_[x]);
    excess_ -= over(x, gap_[after]) + over(before, gap_[x]);
    next_[after] = before;
    prev_[before] = after;
    excess_ += over(before, gap_[after]);
    next_[x] = none;
    time_ -= step_->time[o];
  }

  const flat_graph* step_;
  std::int64_t budget_;
  std::vector<std::uint8_t> rerunnable_;
  std::vector<std::int64_t> need_;

  std::vector<std::uint32_t> op_;
  std::vector<node> prev_, next_, free_;
  std::vector<std::uint64_t> label_;  // ascending along the list
  std::vector<std::int64_t> gap_, node_need_;
  std::vector<std::vector<event>> events_;
  std::int64_t excess_ = 0;
  double time_ = 0, area_ = 0;
  std::vector<change> journal_;
  std::vector<node> hot_;  // nodes that went over the budget, some of them no longer
};

}  // namespace remat
