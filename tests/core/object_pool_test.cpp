// SPDX-License-Identifier: BSL-1.0
#include "remat/core/detail/object_pool.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "remat/core/detail/team.hpp"

using namespace remat::detail;

TEST_CASE("an object is made only if all are in use") {
  object_pool<int> pool;
  int made = 0;
  const auto make = [&] { return std::make_unique<int>(made++); };
  std::unique_ptr<int> first = pool.take(make), second = pool.take(make);
  CHECK(made == 2);
  int* const last = second.get();
  pool.give(std::move(first));
  pool.give(std::move(second));
  CHECK(pool.take(make).get() == last);  // the latest, and it is not given back
  CHECK(*pool.take(make) == 0);
  CHECK(*pool.take(make) == 2);
}

TEST_CASE("threads never hold the same object") {
  object_pool<std::atomic<int>> pool;
  std::atomic<std::size_t> made{0};
  std::atomic<bool> shared{false};
  run_team(4, [&](std::size_t) {
    for (int i = 0; i < 2000; ++i) {
      auto object = pool.take([&] {
        ++made;
        return std::make_unique<std::atomic<int>>(0);
      });
      if (object->fetch_add(1) != 0) shared = true;
      object->fetch_sub(1);
      pool.give(std::move(object));
    }
  });
  CHECK_FALSE(shared);
  CHECK(made <= 4);
}
