// SPDX-License-Identifier: BSL-1.0
#include "remat/core/detail/random.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <cstdlib>

TEST_CASE("a seed decides the whole sequence, also at compile time") {
  remat::detail::random_source a(5), b(5), c(6);
  const std::uint64_t first = a.next();
  CHECK(first == b.next());
  CHECK(first != c.next());
  static_assert(remat::detail::random_source(1).next() == remat::detail::random_source(1).next());
}

TEST_CASE("numbers stay in their ranges, and fill them evenly") {
  remat::detail::random_source random(1);
  std::array<int, 10> count{};
  for (int i = 0; i < 100'000; ++i) {
    ++count.at(random.below(10));
    const double u = random.uniform();
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
  }
  for (const int n : count) CHECK(std::abs(n - 10'000) < 500);  // five standard deviations
  CHECK(random.below(1) == 0);
}

TEST_CASE("neighbouring seeds do not begin alike") {
  int equal_bits = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    std::uint64_t differ = remat::detail::random_source(seed).next() ^ remat::detail::random_source(seed + 1).next();
    for (; differ != 0; differ &= differ - 1) --equal_bits;
    equal_bits += 64;
  }
  CHECK(std::abs(equal_bits - 32'000) < 640);
}
