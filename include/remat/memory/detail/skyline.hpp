// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <tuple>

#include "remat/memory/detail/component.hpp"

namespace REMAT_NAMESPACE::detail {

/// Packs a component by filling the valleys of its skyline \cite sekiyama2018memory. The block of highest rank among
/// those whose lifetime lies within the valley goes there; if no block fits, the valley is raised to its lower side.
///
/// Differs from the paper: a tree over the blocks finds the next block in place of a scan. O(n log n) time if few
/// blocks reach across a valley's sides.
template <class Allocator>
class skyline_packer {
  template <class T>
  using row = row_of<T, Allocator>;

 public:
  /// The component must outlive the packer.
  explicit skyline_packer(const basic_packing_component<Allocator>& c) : c_(c) {
    while (width_ < c.blocks()) width_ *= 2;
    begins_.assign(c.sections + 1, 0);
    for (const std::uint32_t f : c.first) ++begins_[f + 1];
    for (std::uint32_t s = 0; s < c.sections; ++s) begins_[s + 1] += begins_[s];
    // Leaves by first section, then by last one: in a section, the blocks that end early enough stand together.
    leaf_.resize(c.blocks());
    row<std::uint32_t> order(c.blocks(), 0, c.allocator());
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](std::uint32_t i, std::uint32_t j) {
      return std::tie(c.first[i], c.last[i], i) < std::tie(c.first[j], c.last[j], j);
    });
    for (std::uint32_t k = 0; k < c.blocks(); ++k) leaf_[order[k]] = k;
  }

  /// The offset of each block. `rank` holds 1 … n, as `ranks_by` gives them.
  [[nodiscard]] row<std::int64_t> operator()(const row<std::uint32_t>& rank) {
    build(rank);
    row<std::int64_t> offset(c_.blocks(), 0, c_.allocator());
    height_.resize(c_.sections);
    from_.resize(c_.sections);
    to_.resize(c_.sections);
    constexpr std::int64_t wall = std::numeric_limits<std::int64_t>::max();
    set(0, c_.sections - 1, 0);
    for (std::uint32_t left = c_.blocks(), from = 0; left != 0;) {
      const std::uint32_t to = to_[from];
      const std::int64_t height = height_[from], left_side = from == 0 ? wall : height_[from_[from - 1]],
                         right_side = to + 1 == c_.sections ? wall : height_[to + 1];
      // Down to a valley. The lowest one need not come first: what goes into a valley depends on nothing outside it.
      if (std::min(left_side, right_side) < height) {
        from = left_side < height ? from_[from - 1] : to + 1;
        continue;
      }
      const std::uint32_t i = take(from, to);
      if (i == none) {
        from = join(from, to, std::min(left_side, right_side));
        continue;
      }
      offset[i] = c_.next_place(i, height);
      --left;
      if (from < c_.first[i]) set(from, c_.first[i] - 1, height);
      if (c_.last[i] < to) set(c_.last[i] + 1, to, height);
      from = join(c_.first[i], c_.last[i], offset[i] + c_.size[i]);
    }
    return offset;
  }

 private:
  static constexpr std::uint32_t none = 0xffffffff;

  /// A node of the tree over the blocks.
  struct node {
    std::uint32_t rank = 0;     // the highest below it
    std::uint32_t last = none;  // the earliest last section below it
  };

  /// Makes the sections [from, to] one stretch of the skyline.
  void set(std::uint32_t from, std::uint32_t to, std::int64_t height) {
    height_[from] = height;
    to_[from] = to;
    from_[to] = from;
  }

  /// Likewise, together with each neighbour of the same height. Returns where the stretch begins.
  std::uint32_t join(std::uint32_t from, std::uint32_t to, std::int64_t height) {
    if (from != 0 && height_[from_[from - 1]] == height) from = from_[from - 1];
    if (to + 1 != c_.sections && height_[to + 1] == height) to = to_[to + 1];
    set(from, to, height);
    return from;
  }

  /// Makes the tree of all blocks.
  void build(const row<std::uint32_t>& rank) {
    by_rank_.assign(c_.blocks() + 1, none);
    tree_.assign(2 * width_, node{});
    for (std::uint32_t i = 0; i < c_.blocks(); ++i) {
      by_rank_[rank[i]] = i;
      tree_[width_ + leaf_[i]] = {rank[i], c_.last[i]};
    }
    for (std::size_t k = width_; k-- > 1;) update(k);
  }

  void update(std::size_t k) {
    tree_[k] = {std::max(tree_[2 * k].rank, tree_[2 * k + 1].rank), std::min(tree_[2 * k].last, tree_[2 * k + 1].last)};
  }

  /// Takes the block of highest rank that lives within the sections [from, to] out of the tree; `none` if no block
  /// does.
  std::uint32_t take(std::uint32_t from, std::uint32_t to) {
    best_ = 0;
    search(1, 0, width_, begins_[from], begins_[to + 1], to);
    if (best_ == 0) return none;
    const std::uint32_t i = by_rank_[best_];
    std::size_t k = width_ + leaf_[i];
    tree_[k] = node{};
    while (k > 1) update(k /= 2);
    return i;
  }

  /// Raises `best_` to the highest rank below node `k` of a leaf in [begin, end) whose last section is at most `to`.
  /// Node `k` holds the leaves [low, high).
  void search(std::size_t k, std::size_t low, std::size_t high, std::uint32_t begin, std::uint32_t end,
              std::uint32_t to) {
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

  const basic_packing_component<Allocator>& c_;
  std::size_t width_ = 1;                       // leaves of the tree
  row<std::uint32_t> begins_{c_.allocator()};   // section → the number of blocks whose first section is earlier
  row<std::uint32_t> leaf_{c_.allocator()};     // block → its leaf
  row<std::uint32_t> by_rank_{c_.allocator()};  // rank → block
  row<node> tree_{c_.allocator()};
  std::uint32_t best_ = 0;  // the highest rank that `search` has found
  // The skyline is divided into stretches: ranges of sections where it has one height.
  row<std::int64_t> height_{c_.allocator()};  // section → the height of the stretch that begins there
  row<std::uint32_t> to_{c_.allocator()};     // section → the last section of the stretch that begins there
  row<std::uint32_t> from_{c_.allocator()};   // section → the first section of the stretch that ends there
};

/// A block that is placed, for the two packers below.
struct placed_block {
  std::int64_t from, to;
  std::uint32_t first, last;
};

/// Packs a component block by block, in descending rank: each goes to the lowest offset where it overlaps no block
/// that was placed before it. Returns the offset of each block. O(n²) time.
template <class Allocator>
[[nodiscard]] row_of<std::int64_t, Allocator> first_fit(const basic_packing_component<Allocator>& c,
                                                        const row_of<std::uint32_t, Allocator>& rank) {
  row_of<std::uint32_t, Allocator> order(c.blocks(), 0, c.allocator());
  for (std::uint32_t i = 0; i < c.blocks(); ++i) order[c.blocks() - rank[i]] = i;
  row_of<std::int64_t, Allocator> offset(c.blocks(), 0, c.allocator());
  row_of<placed_block, Allocator> placed(c.allocator());  // ascending in `from`
  placed.reserve(c.blocks());
  for (const std::uint32_t i : order) {
    std::int64_t at = c.next_place(i, 0);
    for (const placed_block& x : placed) {
      if (x.last < c.first[i] || x.first > c.last[i]) continue;
      if (x.from - at >= c.size[i]) break;
      if (x.to > at) at = c.next_place(i, x.to);
    }
    offset[i] = at;
    const auto above = std::upper_bound(placed.begin(), placed.end(), at,
                                        [](std::int64_t from, const placed_block& x) { return from < x.from; });
    placed.insert(above, {at, at + c.size[i], c.first[i], c.last[i]});
  }
  return offset;
}

/// Places each block whose offset is negative at the lowest offset where it overlaps no block that is placed, in the
/// order of their begins. O(n · blocks alive at one time) time. Precondition: the component has no rules.
template <class Allocator>
void fill_gaps(const basic_packing_component<Allocator>& c, row_of<std::int64_t, Allocator>& offset) {
  row_of<placed_block, Allocator> alive(c.allocator()), later(c.allocator());  // ascending in `from`
  const auto lower = [](const placed_block& a, const placed_block& b) { return a.from < b.from; };
  const auto placed = [&](std::uint32_t i) {
    return placed_block{offset[i], offset[i] + c.size[i], c.first[i], c.last[i]};
  };
  for (std::uint32_t i = 0, now = 0; i < c.blocks(); ++i) {
    if (offset[i] < 0) {
      if (now < c.first[i]) {
        now = c.first[i];
        alive.erase(std::remove_if(alive.begin(), alive.end(), [now](const placed_block& x) { return x.last < now; }),
                    alive.end());
      }
      later.clear();
      for (std::uint32_t j = i + 1; j < c.blocks() && c.first[j] <= c.last[i]; ++j)
        if (offset[j] >= 0) later.push_back(placed(j));
      std::sort(later.begin(), later.end(), lower);
      std::int64_t at = 0;
      for (auto a = alive.begin(), b = later.begin(); a != alive.end() || b != later.end();) {
        const placed_block& x = a == alive.end() || (b != later.end() && lower(*b, *a)) ? *b++ : *a++;
        if (x.from - at >= c.size[i]) break;
        at = std::max(at, x.to);
      }
      offset[i] = at;
    }
    const placed_block x = placed(i);
    alive.insert(std::upper_bound(alive.begin(), alive.end(), x, lower), x);
  }
}

}  // namespace REMAT_NAMESPACE::detail
