// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/schedule/lifetime.hpp"

namespace remat {

/// A buffer of `size` bytes during the times [lower, upper). The names are those of intervals files.
struct interval {
  std::int64_t lower = 0;  ///< the first time at which the buffer is in use
  std::int64_t upper = 0;  ///< the first time at which it is in use no longer; above `lower`
  std::int64_t size = 0;   ///< bytes, at least 0

  friend bool operator==(const interval&, const interval&) = default;
};

/// The intervals of a schedule's allocations, in the order of `lives.allocations`.
///
/// `elsewhere` names tensors that do not lie in the arena, such as outputs in memory of the caller: the size of their
/// intervals is 0. O(allocations · log |elsewhere|).
[[nodiscard]] inline std::vector<interval> intervals_of(const lifetimes& lives,
                                                        std::span<const tensor_id> elsewhere = {}) {
  std::vector<tensor_id> outside(elsewhere.begin(), elsewhere.end());
  std::sort(outside.begin(), outside.end());
  std::vector<interval> out;
  out.reserve(lives.allocations.size());
  for (const allocation& a : lives.allocations) {
    const bool inside =
        a.is_workspace() || !std::binary_search(outside.begin(), outside.end(), static_cast<tensor_id>(a.tensor));
    out.push_back({a.first, a.last, inside ? a.bytes : 0});
  }
  return out;
}

}  // namespace remat
