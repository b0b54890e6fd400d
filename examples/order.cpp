// SPDX-License-Identifier: BSL-1.0
#include <cstdint>
#include <iostream>
#include <vector>

#include "remat/order.hpp"

int main() {
  // Two branches: 0 makes a large tensor that 1 shrinks, 2 makes another that 3 shrinks, and 4 adds the two.
  const std::vector<std::uint32_t> one{1}, three{3}, four{4};
  const std::vector<remat::order_tensor> tensors{
      {.bytes = 1000, .producer = 0, .readers = one},   {.bytes = 10, .producer = 1, .readers = four},
      {.bytes = 1000, .producer = 2, .readers = three}, {.bytes = 10, .producer = 3, .readers = four},
      {.bytes = 10, .producer = 4, .stays = true},
  };
  const remat::order_result best =
      remat::least_memory_order({.operations = 5, .tensors = tensors}, {.milliseconds = remat::order_unlimited});
  std::cout << best.message() << ':';
  for (const std::uint32_t operation : best.order) std::cout << ' ' << operation;
  std::cout << '\n';
  return best.ok() ? 0 : 1;
}
