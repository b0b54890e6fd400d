// SPDX-License-Identifier: BSL-1.0
#include <cstddef>
#include <iostream>
#include <vector>

#include "remat/arena.hpp"

int main() {
  // A layer's input and output, of which the second may overwrite the first, a scratch buffer, weights at a given
  // offset of the fast memory, and a view of the weights.
  const std::vector<remat::arena_buffer> buffers{
      {.lower = 0, .upper = 2, .size = 3000, .alignment = 64},
      {.lower = 1, .upper = 4, .size = 3000, .alignment = 64, .in_place_of = 0},
      {.lower = 1, .upper = 2, .size = 1000},
      {.lower = 0, .upper = 4, .size = 2048, .banks = 0b01, .offset = 0},
      {.lower = 2, .upper = 3, .size = 512, .banks = 0b01, .alias_of = 3, .alias_offset = 1024},
  };
  const std::vector<remat::arena_bank> banks{{.capacity = 4096}, {.largest_block = 65'536}};

  std::vector<std::byte> memory(std::size_t{1} << 20);
  remat::arena_planner planner(memory);  // so that no call allocates
  const remat::arena_plan plan =
      planner.plan(buffers, {.banks = banks, .milliseconds = remat::arena_unlimited, .work = 1'000'000});
  std::cout << plan.message() << '\n';
  if (!plan.ok()) return 1;
  for (std::size_t i = 0; i < buffers.size(); ++i)
    std::cout << "buffer " << i << ": bank " << plan.places[i].bank << ", offset " << plan.places[i].offset << '\n';
  std::cout << "bank 0: " << plan.bank_bytes[0] << " bytes, bank 1: " << plan.bank_bytes[1] << " bytes, "
            << plan.heap_bytes << " from the heap\n";
}
