// SPDX-License-Identifier: BSL-1.0
// labels: memory
#include "remat/memory/exhaust.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/memory/skyline.hpp"
#include "support/packing.hpp"
#include "support/random_intervals.hpp"

namespace {
using namespace remat;                           // NOLINT: a test
using namespace remat::detail::memory_planning;  // NOLINT: a test

component packed(const component& c, preference by) {
  component out = c;
  std::vector<std::int64_t> offset = skyline_packer(c)(ranks(c, by));
  out.keep_if_lower(offset);
  return out;
}

/// The least height over all orders: in each, every block right above those before it that it meets.
std::int64_t least_height(const component& c) {
  std::vector<std::uint32_t> order(c.blocks());
  for (std::uint32_t i = 0; i < c.blocks(); ++i) order[i] = i;
  std::int64_t best = -1;
  do {
    std::vector<std::int64_t> top(c.blocks(), 0);
    std::int64_t height = 0;
    for (std::size_t k = 0; k < order.size(); ++k) {
      std::int64_t at = 0;
      for (std::size_t m = 0; m < k; ++m)
        if (c.meet(order[k], order[m])) at = std::max(at, top[order[m]]);
      top[order[k]] = at + c.size[order[k]];
      height = std::max(height, top[order[k]]);
    }
    if (best < 0 || height < best) best = height;
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}
}  // namespace

TEST_CASE("the exhaustive search finds the least height, as trying all orders does") {
  std::size_t compared = 0, above_load = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const auto all = seed % 2 == 0 ? test::full_intervals(seed, 4, 6) : test::random_intervals(seed, 7, 6, 5);
    for (component& part : divide(all, 1)) {
      if (part.blocks() < 4 || part.blocks() > 7) continue;
      component c = packed(part, preference::size);
      const run_control control;
      run_clock clock(control);
      exhaustive_search search(c, clock);
      const bool proven = search(c.load, 1'000'000);
      CHECK(c.height == least_height(c));
      CHECK(proven == (c.height > c.load));
      CHECK(test::is_packing_valid(c, all));
      ++compared;
      above_load += proven;
    }
  }
  CHECK(compared > 200);
  CHECK(above_load == 0);
}

TEST_CASE("a least height above the load, which is rare, is proven") {
  std::size_t above_load = 0;
  for (std::uint64_t seed = 0; seed < 40'000 && above_load < 4; ++seed) {
    const auto all = test::full_intervals(seed, 5 + static_cast<std::int64_t>(seed % 4), 4);
    for (component& part : divide(all, 1)) {
      component c = packed(part, preference::lifetime);
      if (part.blocks() > 9 || c.height == c.load) continue;
      const run_control control;
      run_clock clock(control);
      exhaustive_search search(c, clock);
      if (!search(c.load, 1'000'000)) continue;
      ++above_load;
      CHECK(c.height > c.load);
      CHECK(c.height == least_height(c));
    }
  }
  CHECK(above_load == 4);
}

TEST_CASE("a search that runs out of nodes proves nothing") {
  std::size_t stopped = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const auto all = test::random_intervals(seed, 40, 20, 1000);
    for (component& part : divide(all, 1)) {
      if (part.blocks() < 30) continue;
      component c = packed(part, preference::lifetime);
      const run_control control;
      run_clock clock(control);
      exhaustive_search search(c, clock);
      if (search(c.load, 5) || c.height == c.load) continue;
      ++stopped;
      CHECK(search.nodes() == 5);
      CHECK(clock.work_done() == 5 * std::uint64_t{c.blocks() + c.sections});
      CHECK(test::is_packing_valid(c, all));
    }
  }
  CHECK(stopped >= 3);
}
