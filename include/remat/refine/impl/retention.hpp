// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/refine/detail/retention.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace remat::detail {

REMAT_INLINE retention::retention(const problem& p, const schedule& plan)
    : graph_(p.graph()), budget_(p.budget()), op_(computes_of(plan)), gone_(op_.size(), 0) {
  rerunnable_.assign(graph_.num_operations, 0);
  for (std::uint32_t o = 0; o < graph_.num_operations; ++o) {
    bool single = graph_.once[o] == 0;
    for (const std::uint32_t t : graph_.outputs[o]) single = single && graph_.producers[t].size() == 1;
    rerunnable_[o] = single;
  }
  const std::vector<std::int64_t> allocated = read_events(plan);
  build_tree(allocated);
}

REMAT_INLINE std::vector<std::int64_t> retention::read_events(const schedule& plan) {
  const flat_graph& g = graph_;
  std::vector<std::int64_t> allocated(op_.size() + 1, 0);
  std::vector<std::uint32_t> last(g.num_tensors, none);
  std::vector<std::uint8_t> resident(g.num_tensors, 0);
  const auto append = [&](std::uint32_t at, std::uint32_t t, bool write) {
    const auto e = static_cast<std::uint32_t>(events_.size());
    events_.push_back({t, at, last[t], none, write});
    if (last[t] != none) events_[last[t]].next = e;
    last[t] = e;
  };
  begin_.reserve(op_.size() + 1);
  std::uint32_t x = 0;
  for (const step& now : plan.steps) {
    if (now.is_free()) {
      resident[index(now.tensor())] = 0;
      continue;
    }
    const std::uint32_t o = op_[x];
    begin_.push_back(static_cast<std::uint32_t>(events_.size()));
    allocated[x] = g.workspace[o];
    for (const std::uint32_t t : g.inputs[o]) append(x, t, false);
    for (const std::uint32_t t : g.outputs[o]) {
      const bool joins = g.producers[t].size() > 1 && resident[t];  // adds to a tensor that another producer has begun
      resident[t] = 1;
      if (!joins) allocated[x] += g.bytes[t];
      append(x, t, !joins);
    }
    ++x;
  }
  begin_.push_back(static_cast<std::uint32_t>(events_.size()));
  for (const std::uint32_t t : g.final_outputs) append(x, t, false);
  return allocated;
}

REMAT_INLINE void retention::build_tree(const std::vector<std::int64_t>& allocated) {
  // A tensor is live from an event to the next one if that is a read.
  std::vector<std::int64_t> change(op_.size() + 2, 0);
  for (const event& e : events_) {
    if (e.write || e.previous == none) continue;
    change[events_[e.previous].at + 1] += graph_.bytes[e.tensor];
    change[e.at + 1] -= graph_.bytes[e.tensor];
  }
  leaves_ = std::bit_ceil(std::max<std::size_t>(op_.size() + 1, 2));
  most_.assign(2 * leaves_, lowest);
  added_.assign(leaves_, 0);
  std::int64_t live = 0;
  for (std::size_t x = 0; x < allocated.size(); ++x) {
    live += change[x];
    most_[leaves_ + x] = live + allocated[x];
  }
  for (std::size_t i = leaves_; i-- > 1;) most_[i] = std::max(most_[2 * i], most_[2 * i + 1]);
}

REMAT_INLINE bool retention::removable(std::uint32_t x) const noexcept {
  if (gone_[x] || !rerunnable_[op_[x]]) return false;
  for (std::uint32_t e = writes_begin(x); e < begin_[x + 1]; ++e)
    if (events_[e].previous == none && events_[e].next != none) return false;
  return true;
}

REMAT_INLINE double retention::area(std::uint32_t x) const noexcept {
  double sum = 0;
  for (std::uint32_t e = writes_begin(x); e < begin_[x + 1]; ++e)
    if (events_[e].previous != none && is_read(events_[e].next))
      sum += static_cast<double>(graph_.bytes[events_[e].tensor]) * (x - events_[events_[e].previous].at);
  return sum;
}

REMAT_INLINE bool retention::try_remove(std::uint32_t x) {
  removed_.clear();
  take_out(x);
  for (std::size_t i = 0; i < removed_.size(); ++i) {
    const std::uint32_t y = removed_[i];
    for (std::uint32_t e = begin_[y]; e < writes_begin(y); ++e) {
      // The write that supplied the read at y.
      std::uint32_t w = events_[e].previous;
      while (w != none && !events_[w].write) w = events_[w].previous;
      if (w == none) continue;
      const std::uint32_t z = events_[w].at;
      if (!gone_[z] && removable(z) && unread(z)) take_out(z);
    }
  }
  if (most_[1] <= budget_) return true;
  while (!removed_.empty()) {
    put_back(removed_.back());
    removed_.pop_back();
  }
  return false;
}

REMAT_INLINE std::vector<std::uint32_t> retention::computes() const {
  std::vector<std::uint32_t> left;
  for (std::size_t x = 0; x < op_.size(); ++x)
    if (!gone_[x]) left.push_back(op_[x]);
  return left;
}

REMAT_INLINE bool retention::unread(std::uint32_t x) const noexcept {
  for (std::uint32_t e = writes_begin(x); e < begin_[x + 1]; ++e)
    if (is_read(events_[e].next)) return false;
  return begin_[x + 1] != writes_begin(x);
}

REMAT_INLINE void retention::take_out(std::uint32_t x) {
  for (std::uint32_t e = begin_[x + 1]; e-- > begin_[x];) {
    const event& now = events_[e];
    const std::int64_t bytes = graph_.bytes[now.tensor];
    if (now.write) {
      if (now.previous != none && is_read(now.next)) add(events_[now.previous].at + 1, x + 1, bytes);
    } else if (!is_read(now.next)) {
      add(events_[now.previous].at + 1, x + 1, -bytes);
    }
    if (now.previous != none) events_[now.previous].next = now.next;
    if (now.next != none) events_[now.next].previous = now.previous;
  }
  gone_[x] = 1;
  add(x, x + 1, lowest);
  removed_.push_back(x);
}

REMAT_INLINE void retention::put_back(std::uint32_t x) {
  add(x, x + 1, -lowest);
  gone_[x] = 0;
  for (std::uint32_t e = begin_[x]; e < begin_[x + 1]; ++e) {
    const event& now = events_[e];
    if (now.previous != none) events_[now.previous].next = e;
    if (now.next != none) events_[now.next].previous = e;
    const std::int64_t bytes = graph_.bytes[now.tensor];
    if (now.write) {
      if (now.previous != none && is_read(now.next)) add(events_[now.previous].at + 1, x + 1, -bytes);
    } else if (!is_read(now.next)) {
      add(events_[now.previous].at + 1, x + 1, bytes);
    }
  }
}

REMAT_INLINE void retention::add(std::size_t from, std::size_t to, std::int64_t bytes) {
  if (from >= to || bytes == 0) return;
  std::size_t low = from + leaves_, high = to + leaves_ - 1;
  const auto climb = [&](std::size_t i) {
    for (i /= 2; i >= 1; i /= 2) most_[i] = std::max(most_[2 * i], most_[2 * i + 1]) + added_[i];
  };
  for (std::size_t l = low, h = high + 1; l < h; l /= 2, h /= 2) {
    if (l & 1U) add_to_tree_node(l++, bytes);
    if (h & 1U) add_to_tree_node(--h, bytes);
  }
  climb(low);
  climb(high);
}

}  // namespace remat::detail
