// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat::detail {

/// A schedule from which recomputations can be removed. A tensor that is not recomputed any more is held from its last
/// use on instead.
///
/// Does what `timeline` does for this one kind of edit, but in logarithmic time for each tensor of the removed compute:
/// computes keep their *places* (their numbers in the schedule), the events (reads and writes) of a tensor are a linked
/// list, and the memory at each place is in a tree of maxima with range additions. Built in O(reads and writes of the
/// schedule) time.
class retention {
 public:
  /// Marks the end of a list of events.
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  /// Preconditions: `plan` is legal, within the budget of `p`, and has the form that `schedule_computes` gives. `p`
  /// must outlive this object.
  retention(const problem& p, const schedule& plan);

  /// The number of places.
  [[nodiscard]] std::size_t size() const noexcept { return op_.size(); }
  /// The operation of the compute at place x, also after its removal.
  [[nodiscard]] std::uint32_t operation(std::uint32_t x) const noexcept { return op_[x]; }
  /// The largest memory at any place.
  [[nodiscard]] std::int64_t peak() const noexcept { return most_[1]; }

  /// Whether the compute at place x is present and could be removed: every read of its outputs has an earlier write.
  [[nodiscard]] bool removable(std::uint32_t x) const noexcept;

  /// Bytes × places that the outputs of the compute at place x would be held for if the compute were removed.
  [[nodiscard]] double area(std::uint32_t x) const noexcept;

  /// Removes the compute at place x, then the computes whose results only removed computes read. If that exceeds the
  /// budget, restores all of them and returns false. Precondition: `removable(x)`.
  bool try_remove(std::uint32_t x);

  /// The operations of the computes that are left, in order.
  [[nodiscard]] std::vector<std::uint32_t> computes() const;

 private:
  struct event {
    std::uint32_t tensor, at;
    std::uint32_t previous, next;  // present events of the same tensor
    bool write;
  };
  static constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min() / 4;

  [[nodiscard]] std::uint32_t writes_begin(std::uint32_t x) const noexcept {
    return begin_[x] + static_cast<std::uint32_t>(graph_.inputs[op_[x]].size());
  }
  [[nodiscard]] bool is_read(std::uint32_t e) const noexcept { return e != none && !events_[e].write; }

  /// Fills in the events. Returns the bytes that the compute at each place allocates, and 0 for the end.
  std::vector<std::int64_t> read_events(const schedule& plan);
  void build_tree(const std::vector<std::int64_t>& allocated);

  /// Whether nobody reads what the compute at place x writes.
  [[nodiscard]] bool unread(std::uint32_t x) const noexcept;
  void take_out(std::uint32_t x);
  void put_back(std::uint32_t x);

  /// Adds `bytes` to the memory at places from … to − 1.
  void add(std::size_t from, std::size_t to, std::int64_t bytes);
  void add_to_tree_node(std::size_t i, std::int64_t bytes) noexcept {
    most_[i] += bytes;
    if (i < leaves_) added_[i] += bytes;
  }

  const flat_graph& graph_;
  std::int64_t budget_;
  std::vector<std::uint32_t> op_;
  std::vector<std::uint8_t> gone_, rerunnable_;
  std::vector<event> events_;
  std::vector<std::uint32_t> begin_;  // place → its events: reads, then writes
  std::vector<std::int64_t> most_, added_;
  std::size_t leaves_ = 0;
  std::vector<std::uint32_t> removed_;
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/refine/impl/retention.hpp"
#endif
