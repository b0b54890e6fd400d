// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/memory/interval.hpp"

/// The parts of `plan_memory`. Sizes and offsets are counted in units of the alignment.
namespace remat::detail::memory_planning {

/// A set of blocks that can be packed independently of all others: at each time from its first block's begin to its
/// last block's end, some block is alive. A block is an interval whose size is not 0.
///
/// Time is divided into sections, one for each maximal set of blocks that are alive at the same time. Two blocks are
/// alive at the same time if and only if they share a section.
struct component {
  std::vector<std::uint32_t> first;  ///< each block's first section, ascending
  std::vector<std::uint32_t> last;   ///< each block's last section
  std::vector<std::int64_t> size;    ///< of each block
  std::vector<double> duration;      ///< of each block: the length of its lifetime
  std::vector<std::size_t> id;       ///< the interval of each block
  std::uint32_t sections = 0;
  std::int64_t load = 0;             ///< the largest sum of sizes in any section: no packing is lower
  std::vector<std::int64_t> offset;  ///< of each block in the lowest packing found; empty before the first
  std::int64_t height = 0;           ///< of that packing
  std::int64_t bound = 0;            ///< proven: no packing is lower than this; at least the load

  [[nodiscard]] std::uint32_t blocks() const noexcept { return static_cast<std::uint32_t>(size.size()); }
  /// True if it is proven that no packing is lower.
  [[nodiscard]] bool is_optimal() const noexcept { return !offset.empty() && height <= bound; }
  /// The number of sections in which block `i` is alive.
  [[nodiscard]] std::uint32_t length(std::uint32_t i) const noexcept { return last[i] - first[i] + 1; }
  /// True if blocks `i` and `j` are alive at the same time.
  [[nodiscard]] bool meet(std::uint32_t i, std::uint32_t j) const noexcept {
    return first[i] <= last[j] && first[j] <= last[i];
  }
  /// Takes over the packing `other` if it is lower than the one found before, which `other` then holds.
  void keep_if_lower(std::vector<std::int64_t>& other);
};

/// Divides intervals into components, in the order of their times. Intervals of size 0 are left out.
///
/// O(n log n) time. Throws `bad_argument` for an alignment below 1, a negative size, an empty lifetime, or sizes whose
/// rounded sum exceeds 2^63 − 1 bytes.
[[nodiscard]] std::vector<component> divide(std::span<const interval> intervals, std::int64_t alignment);

/// The property by which a packing heuristic orders blocks.
enum class preference : std::uint8_t { lifetime, area, size };

/// The rank of each block under a preference: 1 … n, the largest has the highest. O(n log n) time.
[[nodiscard]] std::vector<std::uint32_t> ranks(const component& c, preference by);

}  // namespace remat::detail::memory_planning

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/memory/impl/component.hpp"
#endif
