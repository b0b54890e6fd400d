// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace remat {

/// A schedule from which recomputations can only go: what they made is held from its last use on instead.
///
/// It is `timeline` for that one kind of edit, in logarithmic time for each tensor of the compute that goes: places are
/// fixed, a tensor's events are a linked list, and the memory at each place lies in a tree of maxima with range
/// additions. Built in O(reads and writes of the schedule).
class retention {
 public:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  /// `plan`: legal, within the budget of `p`, and tidy (`schedule_computes`). `p` must outlive this.
  retention(const problem& p, const schedule& plan)
      : step_(p.graph()), budget_(p.budget()), op_(computes_of(plan)), gone_(op_.size(), 0) {
    const flat_graph& s = step_;
    const auto places = static_cast<std::uint32_t>(op_.size());
    rerunnable_.assign(s.num_operations, 0);
    for (std::uint32_t o = 0; o < s.num_operations; ++o) {
      bool single = s.once[o] == 0;
      for (const std::uint32_t t : s.outputs[o]) single = single && s.producers[t].size() == 1;
      rerunnable_[o] = single;
    }
    // Memory at place x: what lives across into it, and what it allocates.
    std::vector<std::int64_t> change(op_.size() + 2, 0), own(op_.size() + 1, 0);
    std::vector<std::uint32_t> last(s.num_tensors, none);
    std::vector<std::uint8_t> allocated(s.num_tensors, 0);
    begin_.reserve(op_.size() + 1);
    const auto append = [&](std::uint32_t at, std::uint32_t t, bool write) {
      const auto e = static_cast<std::uint32_t>(events_.size());
      events_.push_back({t, at, last[t], none, write});
      if (last[t] != none) {
        events_[last[t]].next = e;
        if (!write) {
          change[events_[last[t]].at + 1] += s.bytes[t];
          change[at + 1] -= s.bytes[t];
        }
      }
      last[t] = e;
    };
    std::uint32_t x = 0;
    for (const step& now : plan.steps) {
      if (now.is_free()) {
        allocated[index(now.tensor())] = 0;
        continue;
      }
      const std::uint32_t o = op_[x];
      begin_.push_back(static_cast<std::uint32_t>(events_.size()));
      own[x] = s.workspace[o];
      for (const std::uint32_t t : s.inputs[o]) append(x, t, false);
      for (const std::uint32_t t : s.outputs[o]) {
        const bool joins = s.producers[t].size() > 1 && allocated[t];  // adds to what another producer began
        allocated[t] = 1;
        if (!joins) own[x] += s.bytes[t];
        append(x, t, !joins);
      }
      ++x;
    }
    begin_.push_back(static_cast<std::uint32_t>(events_.size()));
    for (const std::uint32_t t : s.final_outputs) append(places, t, false);

    leaves_ = std::bit_ceil(std::max<std::size_t>(op_.size() + 1, 2));
    most_.assign(2 * leaves_, lowest);
    added_.assign(leaves_, 0);
    std::int64_t live = 0;
    for (x = 0; x <= places; ++x) {
      live += change[x];
      most_[leaves_ + x] = live + own[x];
    }
    for (std::size_t i = leaves_; i-- > 1;) most_[i] = std::max(most_[2 * i], most_[2 * i + 1]);
  }

  [[nodiscard]] std::size_t size() const noexcept { return op_.size(); }
  [[nodiscard]] std::uint32_t operation(std::uint32_t x) const noexcept { return op_[x]; }
  /// The largest memory at any place.
  [[nodiscard]] std::int64_t peak() const noexcept { return most_[1]; }

  /// Whether the compute at place x is there and could go: all that reads what it writes has an earlier write.
  [[nodiscard]] bool removable(std::uint32_t x) const noexcept {
    if (gone_[x] || !rerunnable_[op_[x]]) return false;
    for (std::uint32_t e = writes_begin(x); e < begin_[x + 1]; ++e)
      if (events_[e].previous == none && events_[e].next != none) return false;
    return true;
  }

  /// Bytes × places that holding takes, if the compute at place x goes.
  [[nodiscard]] double area(std::uint32_t x) const noexcept {
    double sum = 0;
    for (std::uint32_t e = writes_begin(x); e < begin_[x + 1]; ++e)
      if (events_[e].previous != none && is_read(events_[e].next))
        sum += static_cast<double>(step_.bytes[events_[e].tensor]) * (x - events_[events_[e].previous].at);
    return sum;
  }

  /// Takes the compute at place x out, and those that made only what it read, and their like; puts all back and returns
  /// false if that is over the budget. Precondition: `removable(x)`.
  bool try_remove(std::uint32_t x) {
    removed_.clear();
    take_out(x);
    for (std::size_t i = 0; i < removed_.size(); ++i) {
      const std::uint32_t y = removed_[i];
      for (std::uint32_t e = begin_[y]; e < writes_begin(y); ++e) {
        // The write that the read at y had its value from.
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

  /// The computes that are left, in order.
  [[nodiscard]] std::vector<std::uint32_t> computes() const {
    std::vector<std::uint32_t> left;
    for (std::size_t x = 0; x < op_.size(); ++x)
      if (!gone_[x]) left.push_back(op_[x]);
    return left;
  }

 private:
  struct event {
    std::uint32_t tensor, at;
    std::uint32_t previous, next;  // of the same tensor, those that are there
    bool write;
  };
  static constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min() / 4;

  [[nodiscard]] std::uint32_t writes_begin(std::uint32_t x) const noexcept {
    return begin_[x] + static_cast<std::uint32_t>(step_.inputs[op_[x]].size());
  }
  [[nodiscard]] bool is_read(std::uint32_t e) const noexcept { return e != none && !events_[e].write; }

  /// Whether nobody reads what the compute at place x writes.
  [[nodiscard]] bool unread(std::uint32_t x) const noexcept {
    for (std::uint32_t e = writes_begin(x); e < begin_[x + 1]; ++e)
      if (is_read(events_[e].next)) return false;
    return begin_[x + 1] != writes_begin(x);
  }

  void take_out(std::uint32_t x) {
    for (std::uint32_t e = begin_[x + 1]; e-- > begin_[x];) {
      const event& now = events_[e];
      const std::int64_t bytes = step_.bytes[now.tensor];
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

  void put_back(std::uint32_t x) {
    add(x, x + 1, -lowest);
    gone_[x] = 0;
    for (std::uint32_t e = begin_[x]; e < begin_[x + 1]; ++e) {
      const event& now = events_[e];
      if (now.previous != none) events_[now.previous].next = e;
      if (now.next != none) events_[now.next].previous = e;
      const std::int64_t bytes = step_.bytes[now.tensor];
      if (now.write) {
        if (now.previous != none && is_read(now.next)) add(events_[now.previous].at + 1, x + 1, -bytes);
      } else if (!is_read(now.next)) {
        add(events_[now.previous].at + 1, x + 1, bytes);
      }
    }
  }

  /// Adds `bytes` to the memory at places from … to − 1.
  void add(std::size_t from, std::size_t to, std::int64_t bytes) {
    if (from >= to || bytes == 0) return;
    std::size_t low = from + leaves_, high = to + leaves_ - 1;
    const auto climb = [&](std::size_t i) {
      for (i /= 2; i >= 1; i /= 2) most_[i] = std::max(most_[2 * i], most_[2 * i + 1]) + added_[i];
    };
    for (std::size_t l = low, h = high + 1; l < h; l /= 2, h /= 2) {
      if (l & 1U) put(l++, bytes);
      if (h & 1U) put(--h, bytes);
    }
    climb(low);
    climb(high);
  }
  void put(std::size_t i, std::int64_t bytes) noexcept {
    most_[i] += bytes;
    if (i < leaves_) added_[i] += bytes;
  }

  const flat_graph& step_;
  std::int64_t budget_;
  std::vector<std::uint32_t> op_;
  std::vector<std::uint8_t> gone_, rerunnable_;
  std::vector<event> events_;
  std::vector<std::uint32_t> begin_;  // place → its events: reads, then writes
  std::vector<std::int64_t> most_, added_;
  std::size_t leaves_ = 0;
  std::vector<std::uint32_t> removed_;
};

}  // namespace remat
