// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>

#include "remat/memory/detail/packing_rules.hpp"

namespace REMAT_NAMESPACE::detail {

/// A set of blocks that can be packed independently of all others: at each time from its first block's begin to its
/// last block's end, some block is alive. A block is an interval whose size is not 0. Sizes and offsets are counted in
/// units of the alignment.
///
/// Time is divided into sections, one for each maximal set of blocks that are alive at the same time. Two blocks are
/// alive at the same time if and only if they share a section. All its memory, and that of its searches, comes from the
/// allocator.
template <class Allocator>
struct basic_packing_component {
  template <class T>
  using row = row_of<T, Allocator>;

  row<std::uint32_t> first;  ///< each block's first section, ascending
  row<std::uint32_t> last;   ///< each block's last section
  row<std::int64_t> size;    ///< each block's size
  row<double> duration;      ///< the length of each block's lifetime
  row<std::size_t> id;       ///< the interval of each block
  std::uint32_t sections = 0;
  std::int64_t load = 0;           ///< the largest sum of sizes in any section: no packing is lower
  row<std::int64_t> offset;        ///< each block's offset in the lowest packing found; empty before the first
  std::int64_t height = 0;         ///< the height of that packing
  std::int64_t bound = 0;          ///< proven: no packing is lower than this; at least the load
  packing_rules<Allocator> rules;  ///< the places where each block may lie

  explicit basic_packing_component(const Allocator& a = {})
      : first(a), last(a), size(a), duration(a), id(a), offset(a), rules(a) {}

  [[nodiscard]] Allocator allocator() const { return Allocator(size.get_allocator()); }
  /// The least place of block `i` that is at least `x`.
  [[nodiscard]] std::int64_t next_place(std::uint32_t i, std::int64_t x) const {
    return rules.empty() ? x : rules.next(i, size[i], x);
  }
  /// The greatest place of block `i` that is at most `x`; negative if there is none.
  [[nodiscard]] std::int64_t last_place(std::uint32_t i, std::int64_t x) const {
    return rules.empty() || x < 0 ? x : rules.last(i, size[i], x);
  }
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
  void keep_if_lower(row<std::int64_t>& other) {
    std::int64_t top = 0;
    for (std::size_t i = 0; i < size.size(); ++i) top = std::max(top, other[i] + size[i]);
    if (!offset.empty() && top >= height) return;
    height = top;
    offset.swap(other);
  }
};

/// A component whose memory comes from the heap.
using packing_component = basic_packing_component<std::allocator<std::byte>>;

namespace component {

/// The begin or the end of an interval: its time, and the number of the interval, plus `begins` for a begin.
using event = std::pair<std::int64_t, std::uint32_t>;
inline constexpr std::uint32_t begins = 0x80000000;

/// The size of a buffer in units of the alignment, rounded up. Precondition: `bytes` > 0.
inline std::int64_t in_units(std::int64_t bytes, std::int64_t alignment) { return (bytes - 1) / alignment + 1; }

/// The begins and ends of the intervals that are not empty, in the order of time; at one time, ends come first.
template <class Intervals, class Allocator>
[[nodiscard]] row_of<event, Allocator> sorted_events(const Intervals& intervals, const Allocator& memory) {
  row_of<event, Allocator> events(memory);
  events.reserve(intervals.size() * 2);
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    if (intervals[i].size == 0) continue;
    events.emplace_back(intervals[i].lower, static_cast<std::uint32_t>(i) + begins);
    events.emplace_back(intervals[i].upper, static_cast<std::uint32_t>(i));
  }
  std::sort(events.begin(), events.end());
  return events;
}

}  // namespace component

/// Divides intervals (elements with `lower`, `upper` and `size`) into components, in the order of their times.
/// Intervals of size 0 are left out. O(n log n) time.
///
/// Preconditions: at most 2^31 intervals, none with a negative size or an empty lifetime; the alignment is at least 1;
/// the sum of the rounded sizes is below 2^63.
template <class Intervals, class Allocator = std::allocator<std::byte>>
[[nodiscard]] row_of<basic_packing_component<Allocator>, Allocator> divide_intervals(const Intervals& intervals,
                                                                                     std::int64_t alignment,
                                                                                     const Allocator& memory = {}) {
  row_of<basic_packing_component<Allocator>, Allocator> out(memory);
  row_of<std::uint32_t, Allocator> block(intervals.size(), 0, memory);  // each interval's, in the component at hand
  std::uint32_t alive = 0;
  std::int64_t load = 0;
  bool grown = false;  // a block has begun since the last section ended
  for (const auto& [time, code] : component::sorted_events(intervals, memory)) {
    const std::size_t i = code & ~component::begins;
    if (code >= component::begins) {
      if (alive++ == 0) out.emplace_back(memory);
      auto& c = out.back();
      block[i] = c.blocks();
      c.id.push_back(i);
      c.first.push_back(c.sections);
      c.last.push_back(0);
      c.size.push_back(component::in_units(intervals[i].size, alignment));
      c.duration.push_back(static_cast<double>(intervals[i].upper) - static_cast<double>(intervals[i].lower));
      load += c.size.back();
      grown = true;
      continue;
    }
    auto& c = out.back();
    if (grown) {
      ++c.sections;
      c.load = std::max(c.load, load);
      c.bound = c.load;
      grown = false;
    }
    c.last[block[i]] = c.sections - 1;
    load -= c.size[block[i]];
    --alive;
  }
  return out;
}

/// The property by which a packing heuristic orders blocks.
enum class block_property : std::uint8_t { lifetime, area, size };

/// The rank of each block by a property: 1 … n, the largest has the highest. O(n log n) time.
template <class Allocator>
[[nodiscard]] row_of<std::uint32_t, Allocator> ranks_by(block_property by,
                                                        const basic_packing_component<Allocator>& c) {
  struct key {
    double major, minor;
    std::uint32_t block;
  };
  row_of<key, Allocator> keys(c.allocator());
  keys.reserve(c.blocks());
  for (std::uint32_t i = 0; i < c.blocks(); ++i) {
    const double length = c.length(i), size = static_cast<double>(c.size[i]);
    if (by == block_property::size)
      keys.push_back({size, length, i});
    else
      keys.push_back({by == block_property::area ? length * size : length, size, i});
  }
  std::sort(keys.begin(), keys.end(), [](const key& a, const key& b) {
    return std::tie(a.major, a.minor, b.block) < std::tie(b.major, b.minor, a.block);
  });
  row_of<std::uint32_t, Allocator> rank(c.blocks(), 0, c.allocator());
  for (std::uint32_t r = 0; r < rank.size(); ++r) rank[keys[r].block] = r + 1;
  return rank;
}

}  // namespace REMAT_NAMESPACE::detail
