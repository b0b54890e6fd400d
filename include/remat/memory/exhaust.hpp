// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/memory/component.hpp"

namespace remat::detail::memory_planning {

/// Exhaustive depth-first search for lower packings, as in \cite moffitt2023minimalloc: blocks are placed in ascending
/// order of offset, each on the skyline of the blocks before it.
///
/// Why this loses no optimum: among the packings of least height, take one whose offsets have the least sum. Each of
/// its blocks lies on the skyline of the blocks before it in the order (offset, block), and no later block would fit
/// under it; equal blocks may be taken to lie in the order of their indices. A branch ends when, in some section, the
/// larger of the skyline and the last offset plus the sizes of the blocks not yet placed reach the best height.
///
/// O(blocks × their sections) time a node. Polls the clock at each node.
class exhaustive_search {
 public:
  /// The component and the clock must outlive the search; the component holds the packing to improve. The clock counts
  /// the work.
  exhaustive_search(component& c, run_clock& clock);

  /// Returns true if the component's packing is now proven the lowest. A packing of height `least` or lower ends the
  /// search, and so do `nodes` nodes.
  [[nodiscard]] bool operator()(std::int64_t least, std::uint64_t nodes);

  /// The nodes of all calls.
  [[nodiscard]] std::uint64_t nodes() const noexcept { return nodes_; }

 private:
  static constexpr std::uint32_t none = 0xffffffff;
  struct choice {
    std::int64_t at;
    std::uint32_t block;
  };

  [[nodiscard]] std::int64_t on_skyline(std::uint32_t i) const;
  [[nodiscard]] bool is_hopeless(std::int64_t last) const;
  [[nodiscard]] std::vector<choice> choices(std::int64_t last, std::uint32_t last_block) const;
  void descend(std::uint32_t placed, std::int64_t last, std::uint32_t last_block);

  component& c_;
  run_clock& clock_;
  std::vector<std::int64_t> level_;   // of each section: its skyline
  std::vector<std::int64_t> open_;    // of each section: the sizes of its blocks that are not placed
  std::vector<std::int64_t> offset_;  // of each block: −1 if it is not placed
  std::vector<std::uint32_t> twin_;   // of each block: the last equal block of lower index
  std::int64_t least_ = 0;
  std::uint64_t left_ = 0;  // nodes
  std::uint64_t nodes_ = 0;
  bool stopped_ = false;
};

}  // namespace remat::detail::memory_planning

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/memory/impl/exhaust.hpp"
#endif
