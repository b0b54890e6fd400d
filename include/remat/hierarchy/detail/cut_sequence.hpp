// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace remat::detail {

namespace partitioning {

/// A run of items in which each equals the one `period` places before it.
struct repeat {
  std::size_t begin = 0;   ///< its first item
  std::size_t end = 0;     ///< one past its last item
  std::size_t period = 0;  ///< 0: there is none
};

/// The repeat of most items in [begin, end) of `kinds`, with a period of `least_period` to `max_period`; of equal ones
/// that of the shortest period, then the first. It has at least two periods. O((end - begin) · max_period) time.
[[nodiscard]] repeat longest_repeat(std::span<const std::uint64_t> kinds, std::size_t begin, std::size_t end,
                                    std::size_t least_period, std::size_t max_period);

/// The place in the period at which `r` should be cut: the fewest bytes cross there, on average over its whole periods.
/// `crossing[i]` are the bytes that cross between items i - 1 and i. O(end - begin) time.
[[nodiscard]] std::size_t cheapest_shift(const repeat& r, std::span<const std::int64_t> crossing);

/// A sequence of nodes that may be cut into pieces. Like nodes have the same kind.
///
/// It is divided once into runs that repeat themselves at least three times, with a period of at most 32 nodes, and the
/// rests between them. A run is cut into pieces of the same number of whole periods, up to one, or each period alike.
/// So like blocks become like pieces. A rest is cut into pieces of about equal size, each cut where the fewest bytes
/// cross within a quarter of a piece around it.
class sequence_cutter {
 public:
  /// `weight`: operations of a node, at least 1. `crossing[i]`: bytes that node i - 1 hands to node i; [0] does not
  /// count. Each has one entry for each node; `crossing` may have more. O(32 · nodes) time.
  sequence_cutter(std::span<const std::uint64_t> kind, std::span<const std::uint32_t> weight,
                  std::span<const std::int64_t> crossing);

  /// The number of pieces when no piece should have more than about `most` operations, which is at least 1. Pieces of
  /// rests may have half as many again; a node is in one piece however large it is. O(runs) time.
  [[nodiscard]] std::size_t count(std::uint64_t most) const;

  /// The pieces [begin, end) in turn. O(nodes) time. There are at most `count(most)`.
  [[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> cut(std::uint64_t most) const;

  /// The operations of all nodes.
  [[nodiscard]] std::uint64_t total() const { return before_.back(); }

 private:
  struct section {
    std::size_t begin = 0, end = 0;
    std::size_t period = 0;  // 0: a rest; the section is whole periods otherwise
  };

  [[nodiscard]] std::uint64_t weight(std::size_t begin, std::size_t end) const { return before_[end] - before_[begin]; }
  /// The number of pieces into which a rest is cut.
  [[nodiscard]] std::size_t pieces_of(std::size_t begin, std::size_t end, std::uint64_t most) const;
  void cut_rest(std::size_t begin, std::size_t end, std::uint64_t most,
                std::vector<std::pair<std::size_t, std::size_t>>& out) const;

  std::vector<std::uint64_t> before_;   // operations of the nodes before the i-th
  std::vector<std::int64_t> crossing_;  // as given
  std::vector<section> sections_;
};

}  // namespace partitioning

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/hierarchy/impl/cut_sequence.hpp"
#endif
