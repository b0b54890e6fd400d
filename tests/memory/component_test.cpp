// SPDX-License-Identifier: BSL-1.0
#include "remat/memory/detail/component.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/random_intervals.hpp"

namespace {
using namespace remat;          // NOLINT: a test
using namespace remat::detail;  // NOLINT: a test

}  // namespace

TEST_CASE("two blocks share a section of one component exactly if their intervals overlap in time") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto all = test::random_intervals(seed, 1 + seed % 12, 4 + static_cast<std::int64_t>(seed % 20), 5);
    const std::vector<packing_component> components = divide_intervals(all, 1);
    std::vector<std::size_t> part_of(all.size(), components.size()), block_of(all.size(), 0);
    std::size_t blocks = 0;
    for (std::size_t k = 0; k < components.size(); ++k)
      for (std::uint32_t i = 0; i < components[k].blocks(); ++i, ++blocks) {
        part_of[components[k].id[i]] = k;
        block_of[components[k].id[i]] = i;
        CHECK(components[k].size[i] == all[components[k].id[i]].size);
        CHECK(components[k].first[i] <= components[k].last[i]);
        CHECK(components[k].last[i] < components[k].sections);
        if (i > 0) CHECK(components[k].first[i - 1] <= components[k].first[i]);
      }
    for (std::size_t i = 0; i < all.size(); ++i) {
      CHECK((part_of[i] == components.size()) == (all[i].size == 0));
      for (std::size_t j = 0; j < i; ++j) {
        if (all[i].size == 0 || all[j].size == 0) continue;
        const bool overlap = all[i].lower < all[j].upper && all[j].lower < all[i].upper;
        const bool meet =
            part_of[i] == part_of[j] && components[part_of[i]].meet(static_cast<std::uint32_t>(block_of[i]),
                                                                    static_cast<std::uint32_t>(block_of[j]));
        CHECK(overlap == meet);
      }
    }
    for (const packing_component& c : components) {
      std::int64_t most = 0;
      for (std::uint32_t s = 0; s < c.sections; ++s) {
        std::int64_t load = 0;
        for (std::uint32_t i = 0; i < c.blocks(); ++i)
          if (c.first[i] <= s && s <= c.last[i]) load += c.size[i];
        most = std::max(most, load);
      }
      CHECK(c.load == most);
    }
  }
}

TEST_CASE("sizes are counted in units of the alignment, rounded up") {
  const std::vector<packing_component> components =
      divide_intervals(std::vector<interval>{{0, 2, 1}, {0, 2, 256}, {1, 2, 257}}, 256);
  REQUIRE(components.size() == 1);
  CHECK(components[0].size == std::vector<std::int64_t>{1, 1, 2});
  CHECK(components[0].load == 4);
}

TEST_CASE("ranks order blocks by lifetime, area or size") {
  // Lifetimes in sections 3, 1, 1; sizes 2, 4, 7.
  const std::vector<packing_component> components =
      divide_intervals(std::vector<interval>{{0, 6, 2}, {0, 2, 4}, {3, 5, 7}, {5, 6, 1}}, 1);
  REQUIRE(components.size() == 1);
  CHECK(ranks_by(block_property::lifetime, components[0]) == std::vector<std::uint32_t>{4, 2, 3, 1});
  CHECK(ranks_by(block_property::area, components[0]) == std::vector<std::uint32_t>{3, 2, 4, 1});
  CHECK(ranks_by(block_property::size, components[0]) == std::vector<std::uint32_t>{2, 3, 4, 1});
}

TEST_CASE("a lower packing replaces the one before it, a higher one does not") {
  packing_component c = divide_intervals(std::vector<interval>{{0, 1, 3}, {0, 1, 5}}, 1)[0];
  std::vector<std::int64_t> high{0, 4}, low{5, 0}, same{0, 3};
  c.keep_if_lower(high);
  CHECK(c.height == 9);
  c.keep_if_lower(low);
  CHECK(c.height == 8);
  CHECK(c.offset == std::vector<std::int64_t>{5, 0});
  c.keep_if_lower(same);
  CHECK(c.offset == std::vector<std::int64_t>{5, 0});
}
