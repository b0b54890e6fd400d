// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "remat/core/detail/leaf.hpp"

namespace REMAT_NAMESPACE::detail {

/// A topological order of 0 … n − 1: at each place the smallest number that waits for nothing. So numbers that are in
/// a topological order already keep it. `missing` holds how often each waits; `after(i, arrive)` calls `arrive(j)` for
/// each that waits for `i`, as often as it does. Numbers that wait for each other are not in the order, and still wait
/// in `missing`. O(waits + n log n) time.
template <class After>
[[nodiscard]] std::vector<std::uint32_t> smallest_first(std::vector<std::uint32_t>& missing, const After& after) {
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
  for (std::uint32_t i = 0; i < missing.size(); ++i)
    if (missing[i] == 0) ready.push(i);
  std::vector<std::uint32_t> order;
  while (!ready.empty()) {
    order.push_back(ready.top());
    ready.pop();
    after(order.back(), [&](std::uint32_t j) {
      if (--missing[j] == 0) ready.push(j);
    });
  }
  return order;
}

}  // namespace REMAT_NAMESPACE::detail
