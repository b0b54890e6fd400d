// SPDX-License-Identifier: BSL-1.0
#include "remat/core/detail/bit_words.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "remat/core/detail/random.hpp"

using namespace remat::detail;

TEST_CASE("bits are a set of numbers") {
  random_source random(1);
  bit_words words(4, 0), others(3, 0);
  std::set<std::uint32_t> expected, more;
  for (int k = 0; k < 500; ++k) {
    const std::uint32_t i = random.below(256), j = random.below(192);
    if (random.below(2) == 0) {
      set_bit(words, i);
      expected.insert(i);
    } else {
      clear_bit(words, i);
      expected.erase(i);
    }
    if (random.below(20) == 0) {
      set_bit(others, j);
      more.insert(j);
    }
    const auto members = [](const bit_words& of) {
      std::vector<std::uint32_t> out;
      for_each_bit(of, [&](std::uint32_t b) { out.push_back(b); });
      return out;
    };
    CHECK(members(words) == std::vector<std::uint32_t>(expected.begin(), expected.end()));
    CHECK(count_bits(words) == expected.size());
    CHECK(test_bit(words, i) == expected.contains(i));
    bit_words both = words;
    unite(both, others);
    std::set<std::uint32_t> of_both = expected;
    of_both.insert(more.begin(), more.end());
    CHECK(members(both) == std::vector<std::uint32_t>(of_both.begin(), of_both.end()));
    unite(both, bit_words{});
    CHECK(count_bits(both) == of_both.size());
  }
}

TEST_CASE("equal words have one hash, and a changed bit another") {
  const bit_words words{1, 2, 3};
  for (std::uint32_t i = 0; i < 192; ++i) {
    bit_words changed = words;
    test_bit(changed, i) ? clear_bit(changed, i) : set_bit(changed, i);
    CHECK(hash_words(changed) != hash_words(words));
  }
  CHECK(hash_words(bit_words{1, 2, 3}) == hash_words(words));
}
