// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace remat {

/// The largest relative difference, by rounding, between two sums of the same times in different orders.
inline constexpr double rounding_error = 1e-12;

/// Returns `limit`, raised by the rounding error of a sum that equals it.
[[nodiscard]] constexpr double with_rounding(double limit) noexcept { return limit * (1 + rounding_error); }

/// The one test of optimality: returns true when `value` exceeds its proven lower bound by no more than rounding.
[[nodiscard]] constexpr bool is_optimal(double value, double lower_bound) noexcept {
  return value <= with_rounding(lower_bound);
}

}  // namespace remat
