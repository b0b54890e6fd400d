// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/memory/check.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE std::vector<interval> intervals_of(const lifetimes& lives, std::span<const tensor_id> elsewhere) {
  std::vector<tensor_id> outside(elsewhere.begin(), elsewhere.end());
  std::sort(outside.begin(), outside.end());
  std::vector<interval> out;
  out.reserve(lives.allocations.size());
  for (const allocation& a : lives.allocations) {
    const bool inside =
        a.is_workspace() || !std::binary_search(outside.begin(), outside.end(), static_cast<tensor_id>(a.tensor));
    out.push_back({a.first, a.last, inside ? a.bytes : 0});
  }
  return out;
}

REMAT_INLINE std::vector<interval> host_intervals_of(const lifetimes& lives) {
  std::vector<interval> out;
  out.reserve(lives.host.size());
  for (const allocation& a : lives.host) out.push_back({a.first, a.last, a.bytes});
  return out;
}

REMAT_INLINE std::string memory_check_report::message() const {
  const std::string i = "interval " + std::to_string(at);
  switch (what) {
    case memory_violation::none:
      return "valid";
    case memory_violation::wrong_count:
      return "the number of offsets differs from the number of intervals";
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

REMAT_INLINE memory_check_report check_memory(std::span<const interval> intervals,
                                              std::span<const std::int64_t> offsets, std::int64_t arena_bytes,
                                              std::int64_t alignment) {
  struct event {
    std::int64_t time;
    bool begins;
    std::size_t i;
  };
  if (offsets.size() != intervals.size()) return {memory_violation::wrong_count};
  if (alignment < 1) return {memory_violation::bad_alignment};
  std::vector<event> events;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const interval& x = intervals[i];
    if (x.size < 0 || x.lower >= x.upper) return {memory_violation::bad_interval, i};
    if (offsets[i] % alignment != 0) return {memory_violation::misaligned, i};
    if (offsets[i] < 0 || offsets[i] > arena_bytes || x.size > arena_bytes - offsets[i])
      return {memory_violation::out_of_arena, i};
    if (x.size == 0) continue;
    events.push_back({x.lower, true, i});
    events.push_back({x.upper, false, i});
  }
  std::sort(events.begin(), events.end(), [](const event& a, const event& b) {
    return a.time != b.time ? a.time < b.time : a.begins != b.begins ? b.begins : a.i < b.i;
  });
  std::set<std::pair<std::int64_t, std::size_t>> alive;  // (offset, interval): apart from each other
  for (const event& e : events) {
    const std::pair<std::int64_t, std::size_t> place{offsets[e.i], e.i};
    if (!e.begins) {
      alive.erase(place);
      continue;
    }
    const auto above = alive.lower_bound(place);
    if (above != alive.end() && above->first - place.first < intervals[e.i].size)
      return {memory_violation::overlap, e.i, above->second};
    if (above != alive.begin()) {
      const auto below = std::prev(above);
      if (place.first - below->first < intervals[below->second].size)
        return {memory_violation::overlap, e.i, below->second};
    }
    alive.insert(above, place);
  }
  return {};
}

}  // namespace REMAT_NAMESPACE
