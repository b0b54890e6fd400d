// SPDX-License-Identifier: BSL-1.0
#include "remat/core/detail/indexed_heap.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "remat/core/detail/random.hpp"

TEST_CASE("the top is the least item under insertions, removals and changes of keys") {
  constexpr std::uint32_t items = 60;
  remat::detail::random_source random(1);
  remat::detail::indexed_heap heap;
  for (int round = 0; round < 3; ++round) {
    heap.reset(items);
    std::set<std::pair<double, std::uint32_t>> expected;
    std::vector<double> key(items, -1);
    for (int i = 0; i < 5000; ++i) {
      const std::uint32_t item = random.below(items);
      REQUIRE(heap.contains(item) == (key[item] >= 0));
      if (key[item] >= 0) {
        REQUIRE(heap.key(item) == key[item]);
        expected.erase({key[item], item});
      }
      if (random.below(3) == 0) {
        heap.remove(item);
        key[item] = -1;
      } else {
        key[item] = random.below(40);  // many are equal: the number decides
        heap.set(item, key[item]);
        expected.emplace(key[item], item);
      }
      REQUIRE(heap.size() == expected.size());
      REQUIRE(heap.empty() == expected.empty());
      if (expected.empty()) continue;
      REQUIRE(heap.top() == expected.begin()->second);
    }
  }
}
