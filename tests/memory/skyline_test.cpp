// SPDX-License-Identifier: BSL-1.0
#include "remat/memory/detail/skyline.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/packing.hpp"
#include "support/random_intervals.hpp"

namespace {
using namespace remat;          // NOLINT: a test
using namespace remat::detail;  // NOLINT: a test

/// The lowest valley first, by the definition: the lowest section, the leftmost of equal ones, with its neighbours of
/// the same height.
std::vector<std::int64_t> fill_valleys(const packing_component& c, const std::vector<std::uint32_t>& rank) {
  std::vector<std::int64_t> level(c.sections, 0), offset(c.blocks(), -1);
  for (std::uint32_t left = c.blocks(); left != 0;) {
    const auto lowest = std::min_element(level.begin(), level.end());
    const auto from = static_cast<std::size_t>(lowest - level.begin());
    std::size_t to = from;
    while (to + 1 < level.size() && level[to + 1] == level[from]) ++to;
    std::uint32_t best = c.blocks();
    for (std::uint32_t i = 0; i < c.blocks(); ++i)
      if (offset[i] < 0 && c.first[i] >= from && c.last[i] <= to && (best == c.blocks() || rank[i] > rank[best]))
        best = i;
    if (best != c.blocks()) {
      offset[best] = level[from];
      for (std::uint32_t s = c.first[best]; s <= c.last[best]; ++s) level[s] += c.size[best];
      --left;
      continue;
    }
    std::int64_t side = -1;
    if (from > 0) side = level[from - 1];
    if (to + 1 < level.size() && (side < 0 || level[to + 1] < side)) side = level[to + 1];
    std::fill(level.begin() + static_cast<std::ptrdiff_t>(from), level.begin() + static_cast<std::ptrdiff_t>(to) + 1,
              side);
  }
  return offset;
}

/// Every block, in descending rank, at the lowest offset that is free during its whole lifetime.
std::vector<std::int64_t> fit_by_definition(const packing_component& c, const std::vector<std::uint32_t>& rank) {
  std::vector<std::int64_t> offset(c.blocks(), -1);
  for (std::uint32_t r = c.blocks(); r > 0; --r) {
    const auto i = static_cast<std::uint32_t>(std::find(rank.begin(), rank.end(), r) - rank.begin());
    for (std::int64_t at = 0; offset[i] < 0; ++at) {
      bool free = true;
      for (std::uint32_t j = 0; j < c.blocks(); ++j)
        free = free && (offset[j] < 0 || !c.meet(i, j) || at >= offset[j] + c.size[j] || offset[j] >= at + c.size[i]);
      if (free) offset[i] = at;
    }
  }
  return offset;
}
}  // namespace

TEST_CASE("both heuristics pack as their definitions say") {
  std::size_t packed = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto all = test::random_intervals(seed, 3 + seed % 30, 5 + static_cast<std::int64_t>(seed % 25), 6);
    for (packing_component& c : divide_intervals(all, 1))
      for (const block_property by : {block_property::lifetime, block_property::area, block_property::size}) {
        const std::vector<std::uint32_t> rank = ranks_by(by, c);
        skyline_packer pack(c);
        std::vector<std::int64_t> skyline = pack(rank), first = first_fit(c, rank);
        CHECK(skyline == fill_valleys(c, rank));
        CHECK(pack(rank) == skyline);  // a packer may be used again
        CHECK(first == fit_by_definition(c, rank));
        for (std::vector<std::int64_t>* offset : {&skyline, &first}) {
          c.offset.clear();
          c.keep_if_lower(*offset);
          CHECK(test::is_packing_valid(c, all));
          CHECK(c.height >= c.load);
        }
        ++packed;
      }
  }
  CHECK(packed > 500);
}
