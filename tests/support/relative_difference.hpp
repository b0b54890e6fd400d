// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <vector>

namespace remat::test {

/// ‖a − b‖ / ‖b‖, which is NaN if b is all zeros.
template <class Number>
[[nodiscard]] double relative_difference(const std::vector<Number>& a, const std::vector<Number>& b) {
  REQUIRE(a.size() == b.size());
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    error += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(error / norm);
}

}  // namespace remat::test
