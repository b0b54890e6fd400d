// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE::detail {

/// Returns a fraction of `bytes`, rounded down: what the decimal number that `fraction` stands for gives, so 0.29 of
/// 100 bytes are 29. Throws `bad_argument` unless 0 ≤ fraction ≤ 1.
[[nodiscard]] inline std::int64_t fraction_of_bytes(double fraction, std::int64_t bytes) {
  if (!(fraction >= 0 && fraction <= 1))
    throw bad_argument("budget is the fraction " + std::to_string(fraction) + "; expected a number from 0 to 1");
  // The double nearest to a decimal number, and the product, may each be too small by half an epsilon.
  const double product = fraction * static_cast<double>(bytes) * (1 + 2 * std::numeric_limits<double>::epsilon());
  const double whole = std::floor(product);
  return whole >= static_cast<double>(bytes) ? bytes : std::min(bytes, static_cast<std::int64_t>(whole));
}

}  // namespace REMAT_NAMESPACE::detail
