// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/memory/exhaust.hpp"

#include <algorithm>
#include <limits>

#include "remat/core/linkage.hpp"

namespace remat::detail::memory_planning {

REMAT_INLINE exhaustive_search::exhaustive_search(component& c, run_clock& clock)
    : c_(c), clock_(clock), level_(c.sections, 0), open_(c.sections, 0) {
  offset_.assign(c.blocks(), -1);
  twin_.assign(c.blocks(), none);
  for (std::uint32_t i = 0; i < c.blocks(); ++i) {
    for (std::uint32_t s = c.first[i]; s <= c.last[i]; ++s) open_[s] += c.size[i];
    for (std::uint32_t j = i; j-- > 0 && c.first[j] == c.first[i] && twin_[i] == none;)
      if (c.last[j] == c.last[i] && c.size[j] == c.size[i]) twin_[i] = j;
  }
}

REMAT_INLINE bool exhaustive_search::operator()(std::int64_t least, std::uint64_t nodes) {
  least_ = least;
  left_ = nodes;
  descend(0, 0, none);
  return !stopped_ && c_.height > least_;
}

/// The lowest offset of block `i` above all blocks placed in its sections.
REMAT_INLINE std::int64_t exhaustive_search::on_skyline(std::uint32_t i) const {
  std::int64_t at = 0;
  for (std::uint32_t s = c_.first[i]; s <= c_.last[i]; ++s) at = std::max(at, level_[s]);
  return at;
}

/// True if the blocks that are not placed cannot lead to a lower packing with offsets of at least `last`.
REMAT_INLINE bool exhaustive_search::is_hopeless(std::int64_t last) const {
  for (std::uint32_t s = 0; s < c_.sections; ++s)
    if (open_[s] != 0 && std::max(level_[s], last) + open_[s] >= c_.height) return true;
  return false;
}

/// The next placements to try, lowest first. `last_block` is the block placed last, at offset `last`.
REMAT_INLINE std::vector<exhaustive_search::choice> exhaustive_search::choices(std::int64_t last,
                                                                               std::uint32_t last_block) const {
  std::vector<choice> out;
  std::int64_t lowest_top = std::numeric_limits<std::int64_t>::max();
  for (std::uint32_t i = 0; i < c_.blocks(); ++i) {
    if (offset_[i] >= 0) continue;
    const std::int64_t at = on_skyline(i);
    lowest_top = std::min(lowest_top, std::max(at, last) + c_.size[i]);
    if (at < last || (at == last && last_block != none && i < last_block)) continue;
    if (twin_[i] != none && offset_[twin_[i]] < 0) continue;
    out.push_back({at, i});
  }
  std::sort(out.begin(), out.end(), [&](const choice& a, const choice& b) {
    if (a.at != b.at) return a.at < b.at;
    const std::uint32_t x = c_.length(a.block), y = c_.length(b.block);
    return x != y ? x > y : a.block < b.block;
  });
  // At or above the lowest top, the block that has this top would fit underneath.
  out.erase(std::find_if(out.begin(), out.end(), [&](const choice& x) { return x.at >= lowest_top; }), out.end());
  return out;
}

REMAT_INLINE void exhaustive_search::descend(std::uint32_t placed, std::int64_t last, std::uint32_t last_block) {
  if (placed == c_.blocks()) {
    std::vector<std::int64_t> found = offset_;
    c_.keep_if_lower(found);
    return;
  }
  if (left_ == 0 || clock_.should_stop()) {
    stopped_ = true;
    return;
  }
  --left_;
  ++nodes_;
  clock_.work(c_.blocks() + c_.sections);
  if (is_hopeless(last)) return;
  std::vector<std::int64_t> before;
  for (const choice& next : choices(last, last_block)) {
    const std::uint32_t i = next.block;
    const auto begin = level_.begin() + c_.first[i], end = level_.begin() + c_.last[i] + 1;
    before.assign(begin, end);
    std::fill(begin, end, next.at + c_.size[i]);
    for (std::uint32_t s = c_.first[i]; s <= c_.last[i]; ++s) open_[s] -= c_.size[i];
    offset_[i] = next.at;
    descend(placed + 1, next.at, i);
    offset_[i] = -1;
    for (std::uint32_t s = c_.first[i]; s <= c_.last[i]; ++s) open_[s] += c_.size[i];
    std::copy(before.begin(), before.end(), level_.begin() + c_.first[i]);
    if (stopped_ || c_.height <= least_) return;
  }
}

}  // namespace remat::detail::memory_planning
