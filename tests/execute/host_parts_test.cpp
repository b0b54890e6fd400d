// SPDX-License-Identifier: BSL-1.0
#include "remat/execute/detail/host_parts.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "remat/core/error.hpp"
#include "support/executions.hpp"
#include "support/outputs_elsewhere.hpp"

using namespace remat;

namespace {

/// Runs the stand-in kernels of a random schedule one after the other, with a guard around each. `spoil(i)` is called
/// after the kernel of launch i. Returns the guard's error.
template <class Spoil>
std::string guarded_run(test::random_execution& e, const launch_plan& plan, std::span<std::byte> arena,
                        host_debug debug, bool check_inputs, Spoil&& spoil) {
  std::vector<host_stream> streams(plan.num_streams());
  detail::launch_calls<host_stream> calls(plan, arena, streams);
  const test::resident_memory memory(e.p, plan, e.kernels, 1);
  memory.bind_all(calls);
  test::own_outputs own(plan);
  own.bind_all(calls);
  detail::host::memory_guard guard(plan, calls, debug, check_inputs);
  try {
    guard.begin_run();
    for (std::uint32_t i = 0; i < plan.size(); ++i) {
      guard.before(i);
      calls[i].seed = kernel_seed(1, calls[i].operation);
      e.kernels(calls[i]);
      spoil(i);
      guard.after(i);
    }
    guard.end_run();
  } catch (const error& failure) {
    return failure.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a write to any byte that belongs to no tensor is noticed; right kernels are let through") {
  std::size_t spoiled = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    test::random_execution e(seed / 2, 8);
    if (!e.legal) continue;
    // Every second time, some outputs lie in the caller's memory.
    const launch_options choice = seed % 2 != 0 ? test::some_outputs(e.p, seed, 70, 0) : launch_options{};
    const test::placed_elsewhere where(e.p, e.plan, choice, 1, seed);
    const launch_plan plan(e.graph, e.p, e.plan.steps, where.layout(), where.options);
    std::vector<std::uint64_t> words(static_cast<std::size_t>(plan.arena_bytes()) / 8 + 1);
    const std::span<std::byte> arena = std::as_writable_bytes(std::span(words));
    for (const host_debug debug : {host_debug::off, host_debug::poison, host_debug::every_launch})
      for (const bool check_inputs : {false, true})
        CHECK(guarded_run(e, plan, arena, debug, check_inputs, [](std::uint32_t) {}).empty());
    for (std::uint32_t at = 0; at < plan.size(); ++at) {
      const std::uint32_t step = plan.launches()[at].step;
      for (std::int64_t byte = 0; byte < plan.arena_bytes(); byte += 7) {
        bool free = true;
        for (std::size_t a = 0; a < plan.offsets().size(); ++a) {
          const allocation& x = plan.lives().allocations[a];
          if (!plan.is_in_arena(static_cast<std::uint32_t>(a))) continue;
          free = free &&
                 !(x.first <= step && step < x.last && plan.offsets()[a] <= byte && byte < plan.offsets()[a] + x.bytes);
        }
        if (!free) continue;
        ++spoiled;
        const std::string text = guarded_run(e, plan, arena, host_debug::every_launch, false, [&](std::uint32_t i) {
          if (i == at) arena[static_cast<std::size_t>(byte)] = std::byte{0};
        });
        CHECK(text.find("it wrote to byte " + std::to_string(byte) + " of the arena, which ") == 0);
        for (const tensor_id t : choice.bound_outputs)
          CHECK(text.find(" of " + plan.label(t) + " until") == std::string::npos);
      }
    }
  }
  CHECK(spoiled > 200);
}

TEST_CASE("each run calls the job once on each worker, the caller among them, and returns after the last") {
  struct state {
    std::vector<std::atomic<std::uint32_t>> calls = std::vector<std::atomic<std::uint32_t>>(4);
    std::thread::id first{};
  };
  for (const std::uint32_t size : {1U, 2U, 4U})
    for (const unsigned spins : {0U, 300U}) {
      state s;
      detail::host::worker_threads workers(
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
    detail::host::host_events events(2, spins);
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
