// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/memory/detail/component.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace remat::detail::memory_planning {

REMAT_INLINE void component::keep_if_lower(std::vector<std::int64_t>& other) {
  std::int64_t top = 0;
  for (std::size_t i = 0; i < size.size(); ++i) top = std::max(top, other[i] + size[i]);
  if (!offset.empty() && top >= height) return;
  height = top;
  offset.swap(other);
}

/// The begin or the end of an interval.
struct interval_event {
  std::int64_t time;
  std::uint32_t code;  // 2 i for the end of interval i, 2 i + 1 for its begin

  [[nodiscard]] bool begins() const noexcept { return (code & 1U) != 0; }
  [[nodiscard]] std::size_t interval() const noexcept { return code / 2; }
};

[[noreturn]] inline void refuse_interval(std::size_t i, const std::string& reason) {
  throw bad_argument("interval " + std::to_string(i) + ": " + reason);
}

/// The size of a buffer in units of the alignment, rounded up. Precondition: `bytes` > 0.
inline std::int64_t in_units(std::int64_t bytes, std::int64_t alignment) { return (bytes - 1) / alignment + 1; }

/// Validates the intervals. Returns the begins and ends of those that are not empty, in the order of time; at one time,
/// ends come first.
inline std::vector<interval_event> sorted_events(std::span<const interval> intervals, std::int64_t alignment) {
  if (alignment < 1) throw bad_argument("alignment is " + std::to_string(alignment) + "; it must be at least 1");
  if (intervals.size() > std::numeric_limits<std::uint32_t>::max() / 2)
    throw bad_argument("there are more than 2^31 intervals");
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  std::vector<interval_event> events;
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
    events.push_back({x.lower, static_cast<std::uint32_t>(2 * i + 1)});
    events.push_back({x.upper, static_cast<std::uint32_t>(2 * i)});
  }
  std::sort(events.begin(), events.end(), [](const interval_event& a, const interval_event& b) {
    if (a.time != b.time) return a.time < b.time;
    if (a.begins() != b.begins()) return b.begins();
    return a.code < b.code;
  });
  return events;
}

REMAT_INLINE std::vector<component> divide(std::span<const interval> intervals, std::int64_t alignment) {
  std::vector<component> out;
  std::vector<std::uint32_t> block(intervals.size(), 0);  // of an interval, in the component at hand
  std::uint32_t alive = 0;
  std::int64_t load = 0;
  bool grown = false;  // a block has begun since the last section ended
  for (const interval_event& e : sorted_events(intervals, alignment)) {
    const std::size_t i = e.interval();
    if (e.begins()) {
      if (alive++ == 0) out.emplace_back();
      component& c = out.back();
      block[i] = c.blocks();
      c.id.push_back(i);
      c.first.push_back(c.sections);
      c.last.push_back(0);
      c.size.push_back(in_units(intervals[i].size, alignment));
      c.duration.push_back(static_cast<double>(intervals[i].upper) - static_cast<double>(intervals[i].lower));
      load += c.size.back();
      grown = true;
      continue;
    }
    component& c = out.back();
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

REMAT_INLINE std::vector<std::uint32_t> ranks(const component& c, preference by) {
  struct key {
    double major, minor;
    std::uint32_t block;
  };
  std::vector<key> keys;
  keys.reserve(c.blocks());
  for (std::uint32_t i = 0; i < c.blocks(); ++i) {
    const double length = c.length(i);
    const double size = static_cast<double>(c.size[i]);
    switch (by) {
      case preference::lifetime:
        keys.push_back({length, size, i});
        break;
      case preference::area:
        keys.push_back({length * size, size, i});
        break;
      case preference::size:
        keys.push_back({size, length, i});
        break;
    }
  }
  std::sort(keys.begin(), keys.end(), [](const key& a, const key& b) {
    if (a.major != b.major) return a.major < b.major;
    if (a.minor != b.minor) return a.minor < b.minor;
    return a.block > b.block;
  });
  std::vector<std::uint32_t> rank(c.blocks());
  for (std::uint32_t r = 0; r < rank.size(); ++r) rank[keys[r].block] = r + 1;
  return rank;
}

}  // namespace remat::detail::memory_planning
