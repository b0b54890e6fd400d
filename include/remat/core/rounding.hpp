// SPDX-License-Identifier: BSL-1.0
#pragma once

namespace remat {

/// Two sums of the same times in different orders differ by rounding alone; by less than this, relative to the sum.
inline constexpr double rounding_error = 1e-12;

/// `limit` plus what rounding may add to a sum that is equal to it.
[[nodiscard]] constexpr double with_rounding(double limit) noexcept { return limit * (1 + rounding_error); }

/// The one test of optimality: `value` is no larger than its proven lower bound, up to rounding.
[[nodiscard]] constexpr bool is_optimal(double value, double lower_bound) noexcept {
  return value <= with_rounding(lower_bound);
}

}  // namespace remat
