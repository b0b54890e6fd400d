// SPDX-License-Identifier: BSL-1.0
#include "remat/core/detail/directed_rounding.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

using namespace remat::detail;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// A double of any sign and of a size from 2^−40 to 2^40.
double any(std::mt19937_64& engine) {
  return std::ldexp(std::uniform_real_distribution<double>(-1, 1)(engine), static_cast<int>(engine() % 81) - 40);
}

}  // namespace

TEST_CASE("a sum or a product is rounded in the direction asked for, by one unit at most, and not if it is exact") {
  std::mt19937_64 engine(1);
  int rounded = 0;
  for (int i = 0; i < 100'000; ++i) {
    // Sums of doubles of similar size are exact in a long double, products of numbers of 32 bits are, too.
    const double a = any(engine), b = std::ldexp(any(engine), std::ilogb(a) / 2);
    const long double sum = static_cast<long double>(a) + b;
    if (std::abs(std::ilogb(a) - std::ilogb(b)) <= 10) {
      REQUIRE(sum_below(a, b) <= sum);
      REQUIRE(std::nextafter(sum_below(a, b), infinity) > sum);
      REQUIRE(sum_above(a, b) >= sum);
      REQUIRE(std::nextafter(sum_above(a, b), -infinity) < sum);
      rounded += sum_below(a, b) != sum_above(a, b);
    }
    const double x = static_cast<float>(a), y = b;
    const double short_y = std::ldexp(std::floor(std::ldexp(y, 38 - std::ilogb(y))), std::ilogb(y) - 38);
    const long double product = static_cast<long double>(x) * short_y;
    REQUIRE(product_below(x, short_y) <= product);
    REQUIRE(product_above(x, short_y) >= product);
    REQUIRE(std::nextafter(product_below(x, short_y), infinity) > product);
  }
  CHECK(rounded > 10'000);
  CHECK(sum_below(1, 2) == 3);
  CHECK(product_below(3, 7) == 21);
  CHECK(sum_below(1, 0x1p-60) == 1);
  CHECK(sum_above(1, 0x1p-60) > 1);
  CHECK(sum_below(1, -0x1p-60) < 1);
}

TEST_CASE("a whole number that a double cannot hold is rounded in the direction asked for") {
  for (const int bits : {10, 53, 54, 60, 62})
    for (std::int64_t off = -3; off <= 3; ++off) {
      const std::int64_t n = (std::int64_t{1} << bits) + off;
      CHECK(static_cast<long double>(number_below(n)) <= static_cast<long double>(n));
      CHECK(static_cast<long double>(number_above(n)) >= static_cast<long double>(n));
      CHECK((number_below(n) == number_above(n)) == (static_cast<std::int64_t>(static_cast<double>(n)) == n));
    }
  CHECK(number_below(-7) == -7);
}

TEST_CASE("a sum of many numbers is at most the exact one, and exact if no addition was rounded") {
  std::mt19937_64 engine(2);
  for (int i = 0; i < 1000; ++i) {
    sum_from_below sum;
    long double exact = 0;
    std::vector<double> numbers(1 + engine() % 200);
    for (double& x : numbers) {
      x = std::abs(any(engine));
      sum.add(x);
      exact += x;
    }
    // The long double is rounded as well, two thousand times as finely.
    REQUIRE(sum.value() <= exact * (1 + 200 * 0x1p-64L));
    REQUIRE(sum.value() >= exact * (1 - 0x1p-51L));
  }
  sum_from_below whole, tenths;
  for (int i = 0; i < 1000; ++i) {
    whole.add(i);
    tenths.add(0.1);
  }
  CHECK(whole.value() == 499'500);
  CHECK(tenths.value() <= 100.00000000000000555L);  // 1000 × the double nearest to 0.1
  CHECK(tenths.value() > 99.99999999999998);
  CHECK(sum_from_below().value() == 0);
}
