// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE::detail {

/// Returns a fraction of `bytes`, rounded down: what the decimal number that `fraction` stands for gives, so 0.29 of
/// 100 bytes are 29 (to a byte, from 2^50 bytes on). Throws `bad_argument` unless 0 ≤ fraction ≤ 1.
[[nodiscard]] inline std::int64_t fraction_of_bytes(double fraction, std::int64_t bytes) {
  if (!(fraction >= 0 && fraction <= 1))
    throw bad_argument("budget is the fraction " + std::to_string(fraction) + "; expected a number from 0 to 1");
  // The product may be rounded over a whole number, to either side: quotients are compared with the fraction itself.
  const auto size = static_cast<double>(bytes);
  const auto quotient = [size](std::int64_t part) { return static_cast<double>(part) / size; };
  if (fraction == 1 || bytes == 0) return bytes;
  auto part = static_cast<std::int64_t>(std::floor(fraction * size));
  if (quotient(part) > fraction) --part;
  if (quotient(part + 1) <= fraction) ++part;
  return std::min(part, bytes);
}

}  // namespace REMAT_NAMESPACE::detail
