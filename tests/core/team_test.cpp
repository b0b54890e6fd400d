// SPDX-License-Identifier: BSL-1.0
// laws/allocation_test.cpp tests what happens if a thread cannot be started.
#include "remat/core/detail/team.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace remat::detail;

TEST_CASE("each call is made once, the first on the caller's thread") {
  for (const std::size_t size : {1U, 2U, 5U}) {
    std::vector<std::atomic<int>> calls(size);
    const auto caller = std::this_thread::get_id();
    std::atomic<bool> is_on_caller{false};
    run_team(size, [&](std::size_t k) {
      ++calls[k];
      if (k == 0) is_on_caller = std::this_thread::get_id() == caller;
    });
    for (const std::atomic<int>& c : calls) CHECK(c == 1);
    CHECK(is_on_caller);
  }
}

TEST_CASE("the exception of the first call that throws leaves when all calls have ended") {
  for (const std::size_t thrower : {0U, 1U, 3U}) {
    std::atomic<int> ended{0};
    std::string said;
    try {
      run_team(4, [&](std::size_t k) {
        ++ended;
        if (k >= thrower) throw std::runtime_error("call " + std::to_string(k));
      });
    } catch (const std::runtime_error& e) {
      said = e.what();
    }
    CHECK(said == "call " + std::to_string(thrower));
    CHECK(ended == 4);
  }
}
