// SPDX-License-Identifier: BSL-1.0
#include "remat/core/detail/budget_fraction.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "remat/core/error.hpp"

using remat::detail::fraction_of_bytes;

TEST_CASE("a fraction of bytes is that of its decimal number, rounded down") {
  CHECK(fraction_of_bytes(0, 100) == 0);
  CHECK(fraction_of_bytes(1, 100) == 100);
  CHECK(fraction_of_bytes(0.29, 100) == 29);  // the product of doubles is 28.999999999999996
  CHECK(fraction_of_bytes(0.5, 7) == 3);
  CHECK(fraction_of_bytes(0.999, 100) == 99);
  for (std::int64_t hundredths = 0; hundredths <= 100; ++hundredths)
    for (const std::int64_t bytes : {std::int64_t{100}, std::int64_t{12'345'600}, std::int64_t{1} << 48})
      CHECK(fraction_of_bytes(std::stod("0." + std::to_string(100 + hundredths).substr(1)) + (hundredths == 100),
                              bytes) == hundredths * (bytes / 100) + hundredths * (bytes % 100) / 100);
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK(fraction_of_bytes(1, most) == most);
  CHECK(fraction_of_bytes(0.5, 0) == 0);
}

TEST_CASE("a fraction outside of [0, 1] is refused") {
  for (const double wrong : {-0.5, 1.0001, 8e9, std::numeric_limits<double>::quiet_NaN()})
    CHECK_THROWS_AS((void)fraction_of_bytes(wrong, 100), remat::bad_argument);
  CHECK_THROWS_WITH_AS((void)fraction_of_bytes(1.5, 100),
                       "budget is the fraction 1.500000; expected a number from 0 to 1", remat::bad_argument);
}
