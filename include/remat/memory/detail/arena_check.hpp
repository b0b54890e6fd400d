// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/arena.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <tuple>

#include "remat/memory/detail/packing_rules.hpp"

namespace REMAT_NAMESPACE::detail {

/// The exact check of a plan: each buffer lies in a bank that it may use, within the bank and one of its blocks, at a
/// multiple of its alignment, where it was told to lie and within the buffer of which it is a view; and no two buffers
/// that are in use at the same time share a byte, unless they may. Shares no code with the search. O(n log n) time.
/// Preconditions: no buffer is a view of itself, and no lifetime is empty.
template <class Allocator>
[[nodiscard]] bool is_arena_valid(std::span<const arena_buffer> buffers, std::span<const arena_bank> banks,
                                  std::span<const arena_place> places, const Allocator& memory) {
  struct event {
    std::int64_t time;
    bool begins;
    std::uint32_t i;
  };
  row_of<event, Allocator> events(memory);  // each buffer's, and its views' as if they were the buffer
  if (places.size() != buffers.size()) return false;
  events.reserve(2 * buffers.size());
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const arena_buffer& x = buffers[i];
    const arena_place& p = places[i];
    auto owner = static_cast<std::uint32_t>(i);
    while (buffers[owner].alias_of != arena_none) owner = buffers[owner].alias_of;
    if (buffers[owner].size > 0) {
      events.push_back({x.lower, true, owner});
      events.push_back({x.upper, false, owner});
    }
    if (p.bank >= banks.size() || (x.banks >> p.bank & 1U) == 0 || p.offset < 0) return false;
    if (x.offset >= 0 && x.offset != p.offset) return false;
    if (x.alias_of != arena_none) {
      const arena_place& of = places[x.alias_of];
      if (x.alias_offset < 0 || x.alias_offset > buffers[x.alias_of].size - x.size) return false;
      if (p.bank != of.bank || p.offset != of.offset + x.alias_offset) return false;
    }
    if (x.size == 0) continue;
    const arena_bank& b = banks[p.bank];
    const std::int64_t within = p.offset % b.largest_block;
    if (within % x.alignment != 0 || within > b.largest_block - x.size || p.offset > b.capacity - x.size) return false;
  }
  std::sort(events.begin(), events.end(), [](const event& a, const event& b) {
    return std::tuple(a.time, a.begins, a.i) < std::tuple(b.time, b.begins, b.i);
  });
  // Sorted by bank, offset and number: apart, unless they may share and begin alike.
  struct position {
    std::uint32_t bank;
    std::int64_t offset;
    std::uint32_t i;
    bool operator<(const position& other) const noexcept {
      return std::tie(bank, offset, i) < std::tie(other.bank, other.offset, other.i);
    }
  };
  using set_memory = typename std::allocator_traits<Allocator>::template rebind_alloc<position>;
  std::set<position, std::less<position>, set_memory> alive{set_memory(memory)};
  row_of<std::uint32_t, Allocator> in_use(buffers.size(), 0,
                                          memory);  // the number of its views that are in use, itself included
  for (const event& e : events) {
    if (e.begins ? in_use[e.i]++ != 0 : --in_use[e.i] != 0) continue;
    const arena_place& p = places[e.i];
    const position me{p.bank, p.offset, e.i};
    if (!e.begins) {
      alive.erase(me);
      continue;
    }
    const auto may_share = [&](std::uint32_t j) {
      return places[j] == p && (buffers[j].in_place_of == e.i || buffers[e.i].in_place_of == j);
    };
    const auto at = alive.lower_bound(me);
    for (auto above = at; above != alive.end() && above->bank == p.bank; ++above) {
      if (above->offset - p.offset >= buffers[e.i].size) break;
      if (!may_share(above->i)) return false;
    }
    std::int64_t level = -1;  // the offset of the next ones below
    for (auto below = at; below != alive.begin();) {
      --below;
      if (below->bank != p.bank || (level >= 0 && below->offset < level)) break;
      if (below->offset < p.offset) level = below->offset;
      if (p.offset - below->offset < buffers[below->i].size && !may_share(below->i)) return false;
    }
    alive.insert(at, me);
  }
  return true;
}

}  // namespace REMAT_NAMESPACE::detail
