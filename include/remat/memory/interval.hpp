// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/schedule/lifetime.hpp"

namespace remat {

/// A buffer of `size` bytes during the times [lower, upper). The names are those of intervals files.
struct interval {
  std::int64_t lower = 0;  ///< the first time at which the buffer is in use
  std::int64_t upper = 0;  ///< the first time at which it is in use no longer; above `lower`
  std::int64_t size = 0;   ///< bytes, at least 0

  friend bool operator==(const interval&, const interval&) = default;
};

/// The intervals of a schedule's allocations, in the order of `lives.allocations`. O(allocations).
[[nodiscard]] inline std::vector<interval> intervals_of(const lifetimes& lives) {
  std::vector<interval> out;
  out.reserve(lives.allocations.size());
  for (const allocation& a : lives.allocations) out.push_back({a.first, a.last, a.bytes});
  return out;
}

}  // namespace remat
