// SPDX-License-Identifier: BSL-1.0
#include "remat/core/detail/within_memory.hpp"

#include <doctest/doctest.h>

#include <new>
#include <stdexcept>

using remat::detail::within_memory;

TEST_CASE("an end of memory is told, and other exceptions go on") {
  int calls = 0;
  CHECK(within_memory([&] { ++calls; }));
  CHECK(!within_memory([&] {
    ++calls;
    throw std::bad_alloc();
  }));
  CHECK(!within_memory([] { throw std::bad_array_new_length(); }));
  CHECK_THROWS_AS((void)within_memory([] { throw std::runtime_error("other"); }), std::runtime_error);
  CHECK(calls == 2);
}
