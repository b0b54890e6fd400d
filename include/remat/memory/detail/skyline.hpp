// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <vector>

#include "remat/memory/detail/component.hpp"

namespace remat::detail::memory_planning {

/// Packs a component by filling the lowest valley of its skyline first \cite sekiyama2018memory. The block of highest
/// rank among those whose lifetime lies within the valley goes there; if no block fits, the valley is raised to its
/// lower side.
///
/// Differs from the paper: a tree over the blocks finds the next block in place of a scan. O(n log n) time if few
/// blocks reach across a valley's sides.
class skyline_packer {
 public:
  /// The component must outlive the packer.
  explicit skyline_packer(const component& c);

  /// The offset of each block. `rank` holds 1 … n, as `ranks` gives them.
  [[nodiscard]] std::vector<std::int64_t> operator()(const std::vector<std::uint32_t>& rank);

 private:
  static constexpr std::uint32_t none = 0xffffffff;

  /// A range of sections where the skyline has one height.
  struct stretch {
    std::uint32_t from, to;
    std::int64_t height;
    std::uint32_t before, after;  // its neighbours
    bool open;                    // false: it was joined with a neighbour
  };
  /// A stretch as it was when it was pushed; outdated if the stretch has changed since.
  struct heap_entry {
    std::int64_t height;
    std::uint32_t from, stretch;
    bool operator<(const heap_entry& o) const { return height != o.height ? height > o.height : from > o.from; }
  };
  /// A node of the tree over the blocks in the order of their first sections.
  struct node {
    std::uint32_t rank = 0;     // the highest below it
    std::uint32_t last = none;  // the earliest last section below it
  };

  std::uint32_t open(std::uint32_t from, std::uint32_t to, std::int64_t height, std::uint32_t before,
                     std::uint32_t after);
  void push(std::uint32_t s);
  void join(std::uint32_t s);
  void raise(std::uint32_t s);
  void place(std::uint32_t s, std::uint32_t i);
  void build(const std::vector<std::uint32_t>& rank);
  void update(std::size_t k);
  std::uint32_t take(std::uint32_t from, std::uint32_t to);
  void search(std::size_t k, std::size_t low, std::size_t high, std::uint32_t begin, std::uint32_t end,
              std::uint32_t to);

  const component& c_;
  std::size_t width_ = 1;               // leaves of the tree
  std::vector<std::uint32_t> begins_;   // section → the number of blocks whose first section is earlier
  std::vector<std::uint32_t> by_rank_;  // rank → block
  std::vector<node> tree_;
  std::uint32_t best_ = 0;  // the highest rank that `search` has found
  std::vector<stretch> stretches_;
  std::priority_queue<heap_entry> heap_;  // lowest stretch first
};

/// Packs a component block by block, in descending rank: each goes to the lowest offset where it overlaps no block
/// that was placed before it. Returns the offset of each block. O(n²) time.
[[nodiscard]] std::vector<std::int64_t> first_fit(const component& c, const std::vector<std::uint32_t>& rank);

}  // namespace remat::detail::memory_planning

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/memory/impl/skyline.hpp"
#endif
