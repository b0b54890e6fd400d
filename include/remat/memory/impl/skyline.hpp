// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/memory/detail/skyline.hpp"

#include <algorithm>
#include <limits>

#include "remat/core/detail/linkage.hpp"

namespace remat::detail::memory_planning {

REMAT_INLINE skyline_packer::skyline_packer(const component& c) : c_(c) {
  while (width_ < c.blocks()) width_ *= 2;
  begins_.assign(c.sections + 1, 0);
  for (const std::uint32_t f : c.first) ++begins_[f + 1];
  for (std::uint32_t s = 0; s < c.sections; ++s) begins_[s + 1] += begins_[s];
}

REMAT_INLINE std::vector<std::int64_t> skyline_packer::operator()(const std::vector<std::uint32_t>& rank) {
  build(rank);
  std::vector<std::int64_t> offset(c_.blocks(), 0);
  stretches_.clear();
  heap_ = {};
  open(0, c_.sections - 1, 0, none, none);
  for (std::uint32_t left = c_.blocks(); left != 0;) {
    const heap_entry lowest = heap_.top();
    heap_.pop();
    const stretch valley = stretches_[lowest.stretch];
    if (!valley.open || valley.height != lowest.height || valley.from != lowest.from) continue;  // outdated
    const std::uint32_t i = take(valley.from, valley.to);
    if (i == none) {
      raise(lowest.stretch);
      continue;
    }
    offset[i] = valley.height;
    --left;
    place(lowest.stretch, i);
  }
  return offset;
}

/// Adds a stretch between two neighbours.
REMAT_INLINE std::uint32_t skyline_packer::open(std::uint32_t from, std::uint32_t to, std::int64_t height,
                                                std::uint32_t before, std::uint32_t after) {
  const auto s = static_cast<std::uint32_t>(stretches_.size());
  stretches_.push_back({from, to, height, before, after, true});
  if (before != none) stretches_[before].after = s;
  if (after != none) stretches_[after].before = s;
  push(s);
  return s;
}

REMAT_INLINE void skyline_packer::push(std::uint32_t s) { heap_.push({stretches_[s].height, stretches_[s].from, s}); }

/// Joins stretch `s` with each neighbour of the same height.
REMAT_INLINE void skyline_packer::join(std::uint32_t s) {
  stretch& x = stretches_[s];
  if (const std::uint32_t b = x.before; b != none && stretches_[b].height == x.height) {
    x.from = stretches_[b].from;
    x.before = stretches_[b].before;
    stretches_[b].open = false;
    if (x.before != none) stretches_[x.before].after = s;
  }
  if (const std::uint32_t a = x.after; a != none && stretches_[a].height == x.height) {
    x.to = stretches_[a].to;
    x.after = stretches_[a].after;
    stretches_[a].open = false;
    if (x.after != none) stretches_[x.after].before = s;
  }
}

/// Raises stretch `s` to its lower neighbour.
REMAT_INLINE void skyline_packer::raise(std::uint32_t s) {
  stretch& x = stretches_[s];
  std::int64_t height = std::numeric_limits<std::int64_t>::max();
  if (x.before != none) height = std::min(height, stretches_[x.before].height);
  if (x.after != none) height = std::min(height, stretches_[x.after].height);
  x.height = height;
  join(s);
  push(s);
}

/// Puts block `i` on stretch `s`, which is split where the block is not alive.
REMAT_INLINE void skyline_packer::place(std::uint32_t s, std::uint32_t i) {
  const stretch old = stretches_[s];
  if (old.from < c_.first[i]) open(old.from, c_.first[i] - 1, old.height, old.before, s);
  if (old.to > c_.last[i]) open(c_.last[i] + 1, old.to, old.height, s, old.after);
  stretch& x = stretches_[s];
  x.from = c_.first[i];
  x.to = c_.last[i];
  x.height = old.height + c_.size[i];
  join(s);
  push(s);
}

/// Makes the tree of all blocks.
REMAT_INLINE void skyline_packer::build(const std::vector<std::uint32_t>& rank) {
  by_rank_.assign(c_.blocks() + 1, none);
  tree_.assign(2 * width_, node{});
  for (std::uint32_t i = 0; i < c_.blocks(); ++i) {
    by_rank_[rank[i]] = i;
    tree_[width_ + i] = {rank[i], c_.last[i]};
  }
  for (std::size_t k = width_; k-- > 1;) update(k);
}

REMAT_INLINE void skyline_packer::update(std::size_t k) {
  tree_[k] = {std::max(tree_[2 * k].rank, tree_[2 * k + 1].rank), std::min(tree_[2 * k].last, tree_[2 * k + 1].last)};
}

/// Takes the block of highest rank that lives within the sections [from, to] out of the tree; `none` if no block does.
REMAT_INLINE std::uint32_t skyline_packer::take(std::uint32_t from, std::uint32_t to) {
  best_ = 0;
  search(1, 0, width_, begins_[from], begins_[to + 1], to);
  if (best_ == 0) return none;
  const std::uint32_t i = by_rank_[best_];
  std::size_t k = width_ + i;
  tree_[k] = node{};
  while (k > 1) update(k /= 2);
  return i;
}

/// Raises `best_` to the highest rank below node `k` of a block in [begin, end) whose last section is at most `to`.
/// Node `k` holds the blocks [low, high).
REMAT_INLINE void skyline_packer::search(std::size_t k, std::size_t low, std::size_t high, std::uint32_t begin,
                                         std::uint32_t end, std::uint32_t to) {
  if (high <= begin || end <= low || tree_[k].rank <= best_ || tree_[k].last > to) return;
  if (high - low == 1) {
    best_ = tree_[k].rank;
    return;
  }
  const std::size_t middle = low + (high - low) / 2;
  const bool left_first = tree_[2 * k].rank > tree_[2 * k + 1].rank;
  if (left_first) search(2 * k, low, middle, begin, end, to);
  search(2 * k + 1, middle, high, begin, end, to);
  if (!left_first) search(2 * k, low, middle, begin, end, to);
}

REMAT_INLINE std::vector<std::int64_t> first_fit(const component& c, const std::vector<std::uint32_t>& rank) {
  struct placed_block {
    std::int64_t from, to;
    std::uint32_t first, last;
  };
  std::vector<std::uint32_t> order(c.blocks());
  for (std::uint32_t i = 0; i < c.blocks(); ++i) order[c.blocks() - rank[i]] = i;
  std::vector<std::int64_t> offset(c.blocks());
  std::vector<placed_block> placed;  // ascending in `from`
  placed.reserve(c.blocks());
  for (const std::uint32_t i : order) {
    std::int64_t at = 0;
    for (const placed_block& x : placed) {
      if (x.last < c.first[i] || x.first > c.last[i]) continue;
      if (x.from - at >= c.size[i]) break;
      at = std::max(at, x.to);
    }
    offset[i] = at;
    const placed_block now{at, at + c.size[i], c.first[i], c.last[i]};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), at,
                                   [](std::int64_t from, const placed_block& x) { return from < x.from; }),
                  now);
  }
  return offset;
}

}  // namespace remat::detail::memory_planning
