// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "remat/bound/detail/max_flow.hpp"
#include "remat/refine/detail/operation_order.hpp"

namespace REMAT_NAMESPACE::detail {

/// Lower bounds on the peak of every order, by minimum cuts.
///
/// When an operation runs, the operations before it (its predecessors, directly or not) have run, and those after it
/// have not. The others may have run or not, as long as the predecessors of each one that has run have, too. Of all
/// these sets of operations, the one with the fewest bytes in use is a minimum cut: the source's side is the set. A
/// tensor is cut if some operation that touches it has run, and some has not. The tensors of the operation itself count
/// in any case.
///
/// It is a template so that a file which includes `order.hpp` and does not call it compiles none of it.
template <class = void>
class order_moment {
 public:
  /// Both must outlive this object. Precondition: all bytes together are below 2^60.
  order_moment(const operation_sequence& s, const least_peak::precedence& dag) : s_(s), dag_(dag) {}

  /// The fewest bytes that may be in use while operation `k` runs. If `stop()` becomes true, a number below them.
  /// O(touches) time, and a maximum flow.
  template <class Stop>
  [[nodiscard]] std::int64_t bytes(std::uint32_t k, const Stop& stop) {
    side_.assign(s_.size(), open);
    spread(k, before);
    spread(k, after);
    side_[k] = after;
    number_.assign(s_.size(), none);
    std::uint32_t nodes = 0;
    for (std::uint32_t o = 0; o < s_.size(); ++o)
      if (side_[o] == open) number_[o] = nodes++;
    collect_tensors(k);
    build(nodes);
    flow_.run(stop);
    return always_ + flow_.value();
  }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  enum side : std::uint8_t { open, before, after };
  struct cut_tensor {
    std::uint32_t begin, end;  // its touchers that are open, in `touchers_`
    std::int64_t bytes;
    bool opened, stays;  // whatever the open operations do, it is in memory before, or after
  };
  struct limited_arc {
    max_flow::arc arc;
    std::int64_t capacity;
  };

  void spread(std::uint32_t k, side to) {
    work_.assign(1, k);
    while (!work_.empty()) {
      const std::uint32_t o = work_.back();
      work_.pop_back();
      for (const std::uint32_t next : to == before ? dag_.before(o) : dag_.after(o))
        if (side_[next] == open) {
          side_[next] = to;
          work_.push_back(next);
        }
    }
  }

  /// Finds the tensors that depend on open operations, and the bytes of those that are in memory in any case.
  void collect_tensors(std::uint32_t k) {
    const std::span<const operation_sequence::tensor> tensors = s_.tensors();
    std::vector<std::uint8_t>& mark = mark_;  // 1: k touches it; 2: some operation before k does; 4: some one after
    mark.assign(tensors.size(), 0);
    index_rows open_touches;
    for (std::uint32_t o = 0; o < s_.size(); ++o, open_touches.end_row())
      for (const auto& t : s_.touches(o)) {
        mark[t.tensor] |= static_cast<std::uint8_t>(o == k ? 1 : side_[o] == before ? 2 : side_[o] == after ? 4 : 0);
        if (side_[o] == open) open_touches.values.push_back(t.tensor);
      }
    touchers_ = open_touches.transposed(tensors.size());
    always_ = s_.standing() + s_.own(k);
    cuts_.clear();
    for (std::uint32_t t = 0; t < tensors.size(); ++t) {
      const auto& x = tensors[t];
      if (x.resident_before) always_ -= x.bytes;
      const bool opened = x.resident_before || (mark[t] & 2U) != 0, stays = x.resident_after || (mark[t] & 4U) != 0;
      if ((mark[t] & 1U) != 0 || (opened && stays)) {
        always_ += x.bytes;
      } else if (!touchers_[t].empty()) {
        cuts_.push_back({touchers_.begin[t], touchers_.begin[t + 1], x.bytes, opened, stays});
      }
    }
  }

  /// A tensor with several open touchers has a node for "one of them has run", and one for "all of them have".
  void build(std::uint32_t nodes) {
    flow_.reset(nodes);
    certain_.clear();
    limited_.clear();
    for (std::uint32_t o = 0; o < s_.size(); ++o)
      for (const std::uint32_t p : dag_.before(o))
        if (number_[o] != none && number_[p] != none) certain_.push_back(flow_.add_arc(number_[o], number_[p]));
    std::vector<std::pair<std::uint32_t, std::int64_t>> from_source, to_sink;
    for (const cut_tensor& t : cuts_) {
      const bool single = t.end - t.begin == 1;
      std::uint32_t some = none, all = none;
      if (single) {
        some = all = number_[touchers_.values[t.begin]];
        if (!t.opened && !t.stays) continue;  // it is in memory while that operation runs alone
      }
      if (!single && !t.opened) some = flow_.add_node();
      if (!single && !t.stays) all = flow_.add_node();
      for (std::uint32_t k = t.begin; k < t.end && !single; ++k) {
        const std::uint32_t o = number_[touchers_.values[k]];
        if (some != none) certain_.push_back(flow_.add_arc(o, some));
        if (all != none) certain_.push_back(flow_.add_arc(all, o));
      }
      if (t.opened)
        from_source.emplace_back(all, t.bytes);
      else if (t.stays)
        to_sink.emplace_back(some, t.bytes);
      else
        limited_.push_back({flow_.add_arc(some, all), t.bytes});
    }
    flow_.finish();
    for (const max_flow::arc a : certain_) flow_.set_capacity(a, max_flow::infinite);
    for (const limited_arc& a : limited_) flow_.set_capacity(a.arc, a.capacity);
    std::vector<std::int64_t> sink(s_.size() + 2 * cuts_.size(), 0);
    for (const auto& [node, bytes] : from_source) flow_.raise_source(node, bytes);
    for (const auto& [node, bytes] : to_sink) sink[node] += bytes;
    for (const auto& [node, bytes] : to_sink) flow_.set_sink(node, sink[node]);
  }

  const operation_sequence& s_;
  const least_peak::precedence& dag_;
  std::vector<std::uint8_t> side_, mark_;
  std::vector<std::uint32_t> number_, work_;  // the node of each open operation
  index_rows touchers_;                       // the open operations that touch each tensor
  std::vector<cut_tensor> cuts_;
  std::vector<max_flow::arc> certain_;  // arcs of infinite capacity
  std::vector<limited_arc> limited_;
  std::int64_t always_ = 0;
  max_flow flow_;
};

/// Raises `bound` by `order_moment`, the operations that use most memory in `order` first. An operation that uses no
/// more than the bound there cannot raise it. Polls the clock before each cut and each wave of a flow.
template <class Clock>
[[nodiscard]] std::int64_t raise_order_bound(const operation_sequence& s, const least_peak::precedence& dag,
                                             std::span<const std::uint32_t> order, std::int64_t bound, Clock& clock) {
  std::int64_t total = s.standing();
  for (const auto& t : s.tensors()) total += t.bytes;
  if (total >= max_flow::infinite / 2) return bound;
  std::vector<std::pair<std::int64_t, std::uint32_t>> moments;
  least_peak::memory_use memory(s);
  for (const std::uint32_t o : order) {
    moments.emplace_back(memory.look(o).during, o);
    memory.place(o);
  }
  std::sort(moments.begin(), moments.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  order_moment moment(s, dag);
  for (const auto& [bytes, o] : moments) {
    if (bytes <= bound || clock.should_stop()) break;
    bound = std::max(bound, moment.bytes(o, [&] { return clock.should_stop(); }));
    clock.work(8 + s.size() / 4);
  }
  return bound;
}

}  // namespace REMAT_NAMESPACE::detail
