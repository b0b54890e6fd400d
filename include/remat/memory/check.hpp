// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/memory/interval.hpp"

namespace remat {

/// What can be wrong with offsets in one arena.
enum class memory_violation : std::uint8_t {
  none,
  wrong_count,    ///< not one offset for each interval
  bad_interval,   ///< a negative size, or a lifetime that is empty
  bad_alignment,  ///< an alignment below 1
  misaligned,
  out_of_arena,  ///< a negative offset, or an end beyond the arena
  overlap        ///< two intervals share a byte at the same time
};

/// What the checker of memory plans found.
struct memory_check_report {
  memory_violation what = memory_violation::none;
  std::size_t at = 0;     ///< the interval
  std::size_t other = 0;  ///< the one that it overlaps

  [[nodiscard]] bool valid() const noexcept { return what == memory_violation::none; }

  /// One line in words.
  [[nodiscard]] std::string message() const {
    const std::string i = "interval " + std::to_string(at);
    switch (what) {
      case memory_violation::none:
        return "valid";
      case memory_violation::wrong_count:
        return "there is not one offset for each interval";
      case memory_violation::bad_interval:
        return i + " has a negative size or an empty lifetime";
      case memory_violation::bad_alignment:
        return "the alignment is below 1";
      case memory_violation::misaligned:
        return "the offset of " + i + " is no multiple of the alignment";
      case memory_violation::out_of_arena:
        return i + " does not lie within the arena";
      case memory_violation::overlap:
        return i + " and interval " + std::to_string(other) + " share bytes at the same time";
    }
    return "unknown";
  }
};

/// Says whether offsets keep all intervals apart within [0, arena_bytes), each at a multiple of `alignment`.
///
/// It shares nothing with the planner. Intervals of size 0 overlap nothing. It sweeps over time, the intervals that are
/// there ordered by offset: O(n log n) time, O(n) memory. Never throws on a bad plan.
[[nodiscard]] inline memory_check_report check_memory(std::span<const interval> intervals,
                                                      std::span<const std::int64_t> offsets, std::int64_t arena_bytes,
                                                      std::int64_t alignment = 1) {
  if (offsets.size() != intervals.size()) return {memory_violation::wrong_count, 0, 0};
  if (alignment < 1) return {memory_violation::bad_alignment, 0, 0};
  struct event {
    std::int64_t time;
    bool begins;
    std::size_t i;
  };
  std::vector<event> events;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const interval& x = intervals[i];
    if (x.size < 0 || x.lower >= x.upper) return {memory_violation::bad_interval, i, 0};
    if (offsets[i] % alignment != 0) return {memory_violation::misaligned, i, 0};
    if (offsets[i] < 0 || offsets[i] > arena_bytes || x.size > arena_bytes - offsets[i])
      return {memory_violation::out_of_arena, i, 0};
    if (x.size == 0) continue;
    events.push_back({x.lower, true, i});
    events.push_back({x.upper, false, i});
  }
  std::sort(events.begin(), events.end(), [](const event& a, const event& b) {
    return a.time != b.time ? a.time < b.time : a.begins != b.begins ? b.begins : a.i < b.i;
  });
  std::set<std::pair<std::int64_t, std::size_t>> there;  // (offset, interval): apart from each other
  for (const event& e : events) {
    const std::pair<std::int64_t, std::size_t> place{offsets[e.i], e.i};
    if (!e.begins) {
      there.erase(place);
      continue;
    }
    const auto above = there.lower_bound(place);
    if (above != there.end() && above->first - place.first < intervals[e.i].size)
      return {memory_violation::overlap, e.i, above->second};
    if (above != there.begin()) {
      const auto below = std::prev(above);
      if (place.first - below->first < intervals[below->second].size)
        return {memory_violation::overlap, e.i, below->second};
    }
    there.insert(above, place);
  }
  return {};
}

}  // namespace remat
