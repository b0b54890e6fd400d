// SPDX-License-Identifier: BSL-1.0
#include "remat/execute/detail/worker_threads.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

using namespace remat::detail::host;

TEST_CASE("each run calls the job once on each worker, the caller among them, and returns after the last") {
  struct state {
    std::vector<std::atomic<std::uint32_t>> calls = std::vector<std::atomic<std::uint32_t>>(4);
    std::thread::id first{};
  };
  for (const std::uint32_t size : {1U, 2U, 4U})
    for (const unsigned spins : {0U, 300U}) {
      state s;
      worker_threads workers(
          size, spins,
          [](void* context, std::uint32_t worker) {
            auto& all = *static_cast<state*>(context);
            ++all.calls[worker];
            if (worker == 0) all.first = std::this_thread::get_id();
          },
          &s);
      for (std::uint32_t run = 1; run <= 200; ++run) {
        workers.run();
        for (std::uint32_t w = 0; w < 4; ++w) CHECK(s.calls[w] == (w < size ? run : 0));
      }
      CHECK(s.first == std::this_thread::get_id());
    }
}

TEST_CASE("an event of one run does not release a wait of the next") {
  for (const unsigned spins : {0U, 300U}) {
    host_events events(2, spins);
    std::atomic<int> stage = 0;
    for (int run = 0; run < 100; ++run) {
      events.begin_run();
      stage = 0;
      std::thread other([&] {
        events.wait(0, 1);
        CHECK(stage == 1);
        stage = 2;
        events.record(1, 1);
      });
      stage = 1;
      events.record(0, 0);
      events.wait(1, 0);
      CHECK(stage == 2);
      other.join();
    }
  }
}
