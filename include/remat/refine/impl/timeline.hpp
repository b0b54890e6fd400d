// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/refine/detail/timeline.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace remat::detail {

REMAT_INLINE timeline::timeline(const problem& p) : graph_(&p.graph()), budget_(p.budget()) {
  const flat_graph& g = *graph_;
  events_.resize(g.num_tensors);
  rerunnable_.assign(g.num_operations, 0);
  need_.assign(g.num_operations, 0);
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    bool single = true;
    need_[o] = g.workspace[o];
    for (const std::uint32_t t : g.outputs[o]) {
      single = single && g.producers[t].size() == 1;
      need_[o] += g.bytes[t];
    }
    rerunnable_[o] = single && g.once[o] == 0;
  }
}

REMAT_INLINE void timeline::load(const schedule& plan) {
  const flat_graph& g = *graph_;
  const schedule tidy = schedule_computes(g, computes_of(plan));
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
      const bool joins = g.producers[t].size() > 1 && allocated[t];  // adds to a tensor that another producer has begun
      if (joins) node_need_[x] -= g.bytes[t];
      events_[t].push_back({x, !joins});
      allocated[t] = 1;
    }
  }
  for (const std::uint32_t t : g.final_outputs) events_[t].push_back({tail, false});
  measure_gaps();
  journal_.clear();
}

REMAT_INLINE void timeline::measure_gaps() {
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

REMAT_INLINE std::vector<std::uint32_t> timeline::computes() const {
  std::vector<std::uint32_t> operations;
  for (node x = next_[head]; x != tail; x = next_[x]) operations.push_back(op_[x]);
  return operations;
}

REMAT_INLINE timeline::node timeline::violated() {
  if (excess_ == 0) {
    exceeding_.clear();
    return none;
  }
  while (!exceeding_.empty()) {
    const node x = exceeding_.back();
    if (alive(x) && x != head && over(x, gap_[prev_[x]]) > 0) return x;
    exceeding_.pop_back();
  }
  for (node x = next_[head];; x = next_[x]) {
    if (over(x, gap_[prev_[x]]) > 0) {
      exceeding_.push_back(x);
      return x;
    }
    if (x == tail) return none;
  }
}

REMAT_INLINE void timeline::set_budget(std::int64_t bytes) {
  budget_ = bytes;
  excess_ = 0;
  for (node x = head; x != tail; x = next_[x]) excess_ += over(next_[x], gap_[x]);
}

REMAT_INLINE bool timeline::unread(node x) const noexcept {
  if (!rerunnable_[op_[x]]) return false;
  for (const std::uint32_t t : graph_->outputs[op_[x]]) {
    const std::size_t i = first_event_from(t, x);
    if (i + 1 < events_[t].size() && !events_[t][i + 1].write) return false;
  }
  return true;
}

REMAT_INLINE bool timeline::extends(std::uint32_t t, node x, std::size_t steps) const noexcept {
  const std::size_t i = first_event_from(t, x);
  const node from = events_[t][i - 1].at;
  for (node y = prev_[x];; y = prev_[y]) {
    // Node x has not begun: only the nodes in between count.
    if (next_[y] != x && gap_[y] + node_need_[next_[y]] + graph_->bytes[t] > budget_) return false;
    if (y == from) return true;
    if (steps-- == 0) return false;
  }
}

REMAT_INLINE void timeline::keep() {
  for (const change& c : journal_)
    if (!c.inserted && !alive(c.at)) free_.push_back(c.at);
  journal_.clear();
  // A node that was moved and then removed is in the journal more than once.
  std::sort(free_.begin(), free_.end());
  free_.erase(std::unique(free_.begin(), free_.end()), free_.end());
}

REMAT_INLINE void timeline::undo(mark m) {
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

REMAT_INLINE timeline::node timeline::insert(std::uint32_t o, node before) {
  const node x = new_node(o);
  put_in(x, prev_[before]);
  journal_.push_back({x, none, true, true});
  return x;
}

REMAT_INLINE void timeline::remove(node x) {
  journal_.push_back({x, prev_[x], false, false});
  take_out(x);
}

REMAT_INLINE bool timeline::movable(node x, node before) const noexcept {
  if (x == before || next_[x] == before) return false;
  for (const std::uint32_t t : graph_->outputs[op_[x]])
    if (graph_->producers[t].size() != 1) return false;
  for (const std::uint32_t t : graph_->inputs[op_[x]]) {
    // A tensor of several producers: all of them have to come first, so x stays on the same side of every event.
    const std::size_t i = first_event_from(t, before);
    if (graph_->producers[t].size() != 1) {
      if (first_event_from(t, x) != i && first_event_from(t, x) + 1 != i) return false;
    }
    if (i == 0) return false;
  }
  for (const std::uint32_t t : graph_->outputs[op_[x]]) {
    const std::size_t i = first_event_from(t, x);
    const auto& list = events_[t];
    if (label_[before] > label_[x]) {
      // Reads that x would leave behind need an earlier write.
      if (i == 0 && i + 1 < list.size() && label_[list[i + 1].at] < label_[before]) return false;
    }
  }
  return true;
}

REMAT_INLINE void timeline::move(node x, node before) {
  journal_.push_back({x, prev_[x], false, false});
  take_out(x);
  put_in(x, prev_[before]);
  journal_.push_back({x, none, true, false});
}

REMAT_INLINE void timeline::clear() {
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
  exceeding_.clear();
  journal_.clear();
}

REMAT_INLINE timeline::node timeline::new_node(std::uint32_t o) {
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

REMAT_INLINE void timeline::link(node x, node after) {
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
  // A node at the end leaves room for many after it; any other takes the middle.
  label_[x] =
      before == tail ? low + std::min<std::uint64_t>((high - low) / 2, std::uint64_t{1} << 40) : low + (high - low) / 2;
}

REMAT_INLINE void timeline::relabel() {
  std::uint64_t count = 1;
  for (node x = next_[head]; x != tail; x = next_[x]) ++count;
  const std::uint64_t stride = std::min<std::uint64_t>(label_[tail] / (count + 1), std::uint64_t{1} << 40);
  std::uint64_t label = 0;
  for (node x = next_[head]; x != tail; x = next_[x]) label_[x] = label += stride;
}

REMAT_INLINE void timeline::add(node from, node to, std::int64_t bytes) {
  for (node x = from; x != to;) {
    const node after = next_[x];
    excess_ -= over(after, gap_[x]);
    gap_[x] += bytes;
    area_ += static_cast<double>(bytes);
    if (const std::int64_t now = over(after, gap_[x]); now > 0) {
      excess_ += now;
      if (bytes > 0) exceeding_.push_back(after);
    }
    x = after;
  }
}

REMAT_INLINE void timeline::put_in(node x, node after) {
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
    if (i < list.size() && !list[i].write) {
      if (i > 0)
        add(list[i - 1].at, x, -graph_->bytes[t]);
      else
        add(x, list[i].at, graph_->bytes[t]);  // no write supplied that read so far
    }
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(i), event{x, true});
  }
}

REMAT_INLINE void timeline::take_out(node x) {
  const std::uint32_t o = op_[x];
  for (const std::uint32_t t : graph_->outputs[o]) {
    auto& list = events_[t];
    const std::size_t i = first_event_from(t, x);
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
    if (i < list.size() && !list[i].write) {
      if (i > 0)
        add(list[i - 1].at, x, graph_->bytes[t]);
      else
        add(x, list[i].at, -graph_->bytes[t]);
    }
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

}  // namespace remat::detail
