// SPDX-License-Identifier: BSL-1.0
#include "remat/execute/virtual_memory.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <new>

using namespace remat;

TEST_CASE("memory is zero and aligned, and far more of it can be had than there is") {
  virtual_memory memory;
  constexpr std::size_t tib = std::size_t{1} << 40;
  auto* const all = static_cast<std::byte*>(memory.allocate(tib, 4096));
  CHECK(reinterpret_cast<std::uintptr_t>(all) % 4096 == 0);
  for (std::size_t at = 0; at < tib; at += tib / 16) {
    CHECK(all[at] == std::byte{0});
    all[at] = std::byte{1};
  }
  all[tib - 1] = std::byte{2};
  CHECK(all[tib - 1] == std::byte{2});
  memory.deallocate(all, tib, 4096);

  void* const one = memory.allocate(1, 1);
  void* const none = memory.allocate(0, 1);
  CHECK(one != none);
  std::memset(one, 1, 1);
  memory.deallocate(one, 1, 1);
  memory.deallocate(none, 0, 1);
}

TEST_CASE("what cannot be had is a bad_alloc") {
  virtual_memory memory;
  CHECK_THROWS_AS((void)memory.allocate(std::size_t{1} << 62, 8), std::bad_alloc);
  CHECK_THROWS_AS((void)memory.allocate(static_cast<std::size_t>(-1), 8), std::bad_alloc);
  CHECK_THROWS_AS((void)memory.allocate(4096, std::size_t{1} << 30), std::bad_alloc);
  virtual_memory other;
  CHECK(memory == other);
  CHECK(memory != *std::pmr::new_delete_resource());
}
