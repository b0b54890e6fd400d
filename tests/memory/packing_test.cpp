// SPDX-License-Identifier: BSL-1.0
#include "remat/memory/detail/packing.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "remat/core/detail/limit_clock.hpp"
#include "support/packing.hpp"
#include "support/random_intervals.hpp"

namespace {
using namespace remat;          // NOLINT: a test
using namespace remat::detail;  // NOLINT: a test

constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();
}  // namespace

TEST_CASE("easy blocks fit below the height wherever the others lie, and nothing is moved") {
  std::size_t filled = 0, left = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const auto all = test::random_intervals(seed, 4 + seed % 40, 5 + static_cast<std::int64_t>(seed % 60), 6);
    std::mt19937_64 engine(seed);
    for (packing_component& c : divide_intervals(all, 1)) {
      const std::int64_t height = c.load + static_cast<std::int64_t>(engine() % 20);
      const std::vector<std::uint8_t> easy = easy_blocks(c, height);
      // The others anywhere: first fit in a random order, from the bottom, or moved up to the top of the height.
      const auto others = some_blocks(c, [&](std::uint32_t i) { return easy[i] == 0; });
      std::vector<std::int64_t> offset(c.blocks(), -1);
      bool fits = true;
      for (const packing_component& x : others) {
        std::vector<std::uint32_t> rank(x.blocks());
        std::iota(rank.begin(), rank.end(), 1U);
        std::shuffle(rank.begin(), rank.end(), engine);
        const std::vector<std::int64_t> low = first_fit(x, rank);
        const bool high = engine() % 2 == 0;
        for (std::uint32_t i = 0; i < x.blocks(); ++i) {
          offset[x.id[i]] = high ? height - low[i] - x.size[i] : low[i];
          fits = fits && low[i] + x.size[i] <= height;
        }
      }
      if (!fits) continue;
      const std::vector<std::int64_t> before = offset;
      fill_gaps(c, offset);
      for (std::uint32_t i = 0; i < c.blocks(); ++i) {
        ++(before[i] < 0 ? filled : left);
        if (before[i] >= 0) CHECK(offset[i] == before[i]);
        CHECK(offset[i] + c.size[i] <= height);
      }
      c.keep_if_lower(offset);
      CHECK(test::is_packing_valid(c, all));
    }
  }
  CHECK(filled > 1000);
  CHECK(left > 1000);
}

TEST_CASE("a block is easy from the height on at which gaps that are just too small leave it a place") {
  const auto components = divide_intervals(std::vector<interval>{{0, 2, 5}, {0, 2, 5}, {0, 2, 5}, {1, 2, 4}}, 1);
  REQUIRE(components.size() == 1);
  CHECK(easy_blocks(components[0], 27)[3] == 0);
  CHECK(easy_blocks(components[0], 28)[3] == 1);
  std::vector<std::int64_t> offset{3, 11, 19, -1};  // gaps of 3 bytes below each
  fill_gaps(components[0], offset);
  CHECK(offset == std::vector<std::int64_t>{3, 11, 19, 24});
}

TEST_CASE("a component whose blocks are mostly easy is packed as low as its core, and by equal work alike") {
  // Long blocks of a few sizes, and thousands of short and small ones, mostly far from the largest load.
  std::mt19937_64 engine(7);
  std::vector<interval> all;
  for (std::int64_t k = 0; k < 120; ++k) {
    const auto length = static_cast<std::int64_t>(200 + engine() % 1500);
    const auto begin = static_cast<std::int64_t>(engine() % 2000);
    all.push_back({begin, begin + length, static_cast<std::int64_t>(300 + 100 * (engine() % 9))});
  }
  for (std::int64_t k = 0; k < 4000; ++k) {
    const auto begin = static_cast<std::int64_t>(engine() % 3400);
    all.push_back(
        {begin, begin + 1 + static_cast<std::int64_t>(engine() % 4), static_cast<std::int64_t>(1 + engine() % 40)});
  }
  const auto pack = [&] {
    auto components = divide_intervals(all, 1);
    shared_search search;
    std::int64_t load = 0;
    for (const packing_component& c : components) load = std::max(load, c.load);
    search.goal = {load, packing_goal::unlimited, load + load / 50, packing_goal::no_work_limit};
    limit_clock clock(unlimited, 30'000'000);
    pack_components(components, clock, search);
    return components;
  };
  const auto components = pack(), again = pack();
  const packing_component& highest = highest_component(components);
  const std::vector<std::uint8_t> easy = easy_blocks(highest, highest.load);
  CHECK(std::count(easy.begin(), easy.end(), 1) > 2000);
  CHECK(highest.height <= highest.load + highest.load / 100);
  REQUIRE(components.size() == again.size());
  for (std::size_t k = 0; k < components.size(); ++k) {
    CHECK(test::is_packing_valid(components[k], all));
    CHECK(components[k].bound <= components[k].height);
    CHECK(components[k].offset == again[k].offset);
  }
}
