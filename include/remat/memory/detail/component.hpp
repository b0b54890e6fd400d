// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "remat/core/error.hpp"
#include "remat/memory/check.hpp"

namespace REMAT_NAMESPACE::detail {

/// A set of blocks that can be packed independently of all others: at each time from its first block's begin to its
/// last block's end, some block is alive. A block is an interval whose size is not 0. Sizes and offsets are counted in
/// units of the alignment.
///
/// Time is divided into sections, one for each maximal set of blocks that are alive at the same time. Two blocks are
/// alive at the same time if and only if they share a section.
struct packing_component {
  std::vector<std::uint32_t> first;  ///< each block's first section, ascending
  std::vector<std::uint32_t> last;   ///< each block's last section
  std::vector<std::int64_t> size;    ///< each block's size
  std::vector<double> duration;      ///< the length of each block's lifetime
  std::vector<std::size_t> id;       ///< the interval of each block
  std::uint32_t sections = 0;
  std::int64_t load = 0;             ///< the largest sum of sizes in any section: no packing is lower
  std::vector<std::int64_t> offset;  ///< each block's offset in the lowest packing found; empty before the first
  std::int64_t height = 0;           ///< the height of that packing
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
  void keep_if_lower(std::vector<std::int64_t>& other) {
    std::int64_t top = 0;
    for (std::size_t i = 0; i < size.size(); ++i) top = std::max(top, other[i] + size[i]);
    if (!offset.empty() && top >= height) return;
    height = top;
    offset.swap(other);
  }
};

namespace component {

/// The begin or the end of an interval: its time, and the number of the interval, plus `begins` for a begin.
using event = std::pair<std::int64_t, std::uint32_t>;
inline constexpr std::uint32_t begins = 0x80000000;

[[noreturn]] inline void refuse_interval(std::size_t i, const std::string& reason) {
  throw bad_argument("interval " + std::to_string(i) + ": " + reason);
}

/// The size of a buffer in units of the alignment, rounded up. Precondition: `bytes` > 0.
inline std::int64_t in_units(std::int64_t bytes, std::int64_t alignment) { return (bytes - 1) / alignment + 1; }

/// Validates the intervals. Returns the begins and ends of those that are not empty, in the order of time; at one time,
/// ends come first.
inline std::vector<event> sorted_events(std::span<const interval> intervals, std::int64_t alignment) {
  if (alignment < 1) throw bad_argument("alignment is " + std::to_string(alignment) + "; it must be at least 1");
  if (intervals.size() > begins) throw bad_argument("there are more than 2^31 intervals");
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  std::vector<event> events;
  events.reserve(intervals.size() * 2);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const interval& x = intervals[i];
    if (x.size < 0) refuse_interval(i, "size is " + std::to_string(x.size) + "; it must not be negative");
    if (x.lower >= x.upper)
      refuse_interval(i,
                      "upper is " + std::to_string(x.upper) + "; it must be above lower, " + std::to_string(x.lower));
    if (x.size == 0) continue;
    const std::int64_t units = in_units(x.size, alignment);
    if (units > largest / alignment - total)
      refuse_interval(i, "the rounded sizes of all intervals together exceed 2^63 − 1");
    total += units;
    events.emplace_back(x.lower, static_cast<std::uint32_t>(i) + begins);
    events.emplace_back(x.upper, static_cast<std::uint32_t>(i));
  }
  std::sort(events.begin(), events.end());
  return events;
}

}  // namespace component

/// Divides intervals into components, in the order of their times. Intervals of size 0 are left out.
///
/// O(n log n) time. Throws `bad_argument` for an alignment below 1, a negative size, an empty lifetime, or sizes whose
/// rounded sum exceeds 2^63 − 1 bytes.
[[nodiscard]] inline std::vector<packing_component> divide_intervals(std::span<const interval> intervals,
                                                                     std::int64_t alignment) {
  std::vector<packing_component> out;
  std::vector<std::uint32_t> block(intervals.size(), 0);  // each interval's block in the component at hand
  std::uint32_t alive = 0;
  std::int64_t load = 0;
  bool grown = false;  // a block has begun since the last section ended
  for (const auto& [time, code] : component::sorted_events(intervals, alignment)) {
    const std::size_t i = code & ~component::begins;
    if (code >= component::begins) {
      if (alive++ == 0) out.emplace_back();
      packing_component& c = out.back();
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
    packing_component& c = out.back();
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
[[nodiscard]] inline std::vector<std::uint32_t> ranks_by(block_property by, const packing_component& c) {
  struct key {
    double major, minor;
    std::uint32_t block;
  };
  std::vector<key> keys;
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
  std::vector<std::uint32_t> rank(c.blocks());
  for (std::uint32_t r = 0; r < rank.size(); ++r) rank[keys[r].block] = r + 1;
  return rank;
}

}  // namespace REMAT_NAMESPACE::detail
