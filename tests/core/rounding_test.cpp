// SPDX-License-Identifier: BSL-1.0
#include "remat/core/detail/rounding.hpp"

#include <doctest/doctest.h>

TEST_CASE("a value is optimal where it meets its bound up to rounding, and not beyond") {
  CHECK(remat::is_optimal(1.0, 1.0));
  CHECK(remat::is_optimal(0.1 + 0.2, 0.3));
  CHECK(remat::is_optimal(0.0, 0.0));
  CHECK_FALSE(remat::is_optimal(1 + 1e-9, 1.0));
  CHECK_FALSE(remat::is_optimal(1e-300, 0.0));
  CHECK(remat::with_rounding(2.0) > 2.0);
}
