// SPDX-License-Identifier: BSL-1.0
#include "remat/version.hpp"

#include <doctest/doctest.h>

#if !defined(REMAT_VERSION) || REMAT_VERSION < 100
#error "REMAT_VERSION must be a number that the preprocessor compares; 0.1.0 is 100"
#endif

TEST_CASE("the number of the version has its three parts") {
  constexpr remat::version v = remat::library_version;
  static_assert(REMAT_VERSION / 10000 == v.major);
  static_assert(REMAT_VERSION / 100 % 100 == v.minor);
  static_assert(REMAT_VERSION % 100 == v.patch);
  CHECK(2 * REMAT_VERSION == 2 * (v.major * 10000 + v.minor * 100 + v.patch));  // in parentheses
}
