// SPDX-License-Identifier: BSL-1.0

// An arena of a pool: used behind its allocation and freed behind all work, on any stream, without a wait of the host.
// The fake runtime reports a use before the allocation or beside the free.
#include "remat/execute/detail/cuda_streams.cuh"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <vector>

#include "remat/execute/cuda.cuh"
#include "support/fake_cuda.hpp"
#include "support/fake_cuda_steps.hpp"

using namespace remat;
using remat::detail::cuda::cuda_arena;
namespace fake = remat::test::fake_cuda;
using fake::bytes_vector;

namespace {

std::size_t host_waits() {
  return fake::calls("cudaStreamSynchronize") + fake::calls("cudaEventSynchronize") +
         fake::calls("cudaDeviceSynchronize") + fake::calls("cudaFree");
}

/// What is given to `to` from now on follows what `from` holds.
void order(cudaStream_t from, cudaStream_t to) {
  const cuda_event e = make_cuda_event();
  throw_on_cuda_error(cudaEventRecord(e.get(), from));
  throw_on_cuda_error(cudaStreamWaitEvent(to, e.get(), 0));
}

}  // namespace

TEST_CASE("memory of a pool is used on other streams than its own, and freed while work is in flight") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const fake::random_step x(seed, 4 + static_cast<std::uint32_t>(seed % 16));
    if (x.where.arena_bytes == 0) continue;
    fake::reset(seed);
    const bytes_vector content(64, std::byte{7});
    const fake::resident input(content);
    const cuda_stream home = make_cuda_stream(), first = make_cuda_stream(), second = make_cuda_stream();
    bytes_vector got[3];
    std::optional<cuda_executor<fake::hash_kernels>> run;
    run.emplace(x.launches({.streams = static_cast<std::uint32_t>(1 + seed % 4)}), fake::hash_kernels{},
                cuda_options{.arena = cuda_memory(static_cast<std::size_t>(x.where.arena_bytes), home.get())});
    x.bind(*run, input.bytes());
    const std::size_t waits = host_waits(), allocated = fake::calls("cudaMallocAsync"), events = run->num_events();
    run->run(first.get(), 1);
    x.fetch(*run, first.get(), got[0]);
    order(first.get(), second.get());
    {
      const cuda_captured_step captured = run->capture(2);
      captured.launch(second.get());
      x.fetch(*run, second.get(), got[1]);
      if (seed % 2 == 0) {
        order(second.get(), home.get());
        run->run(home.get(), 3);
        x.fetch(*run, home.get(), got[2]);
      }
    }
    // The executor cannot know of the fetches: like all work of the caller, they must come before the free.
    order(second.get(), home.get());
    run.reset();
    CHECK(host_waits() == waits);
    CHECK(fake::calls("cudaMallocAsync") == allocated);
    CHECK(fake::calls("cudaFreeAsync") == 1);
    CHECK(events >= 2);
    throw_on_cuda_error(cudaDeviceSynchronize());
    CHECK(got[0] == x.expected(1, content));
    CHECK(got[1] == x.expected(2, content));
    if (seed % 2 == 0) CHECK(got[2] == x.expected(3, content));
    CHECK(fake::the().reports.empty());
  }
}

namespace {

/// Destroys executors behind runs that end in each way, on a pool's arena or their own, while their work is in flight.
void destroy_in_flight(std::uint64_t seed, bool own) {
  CAPTURE(seed);
  CAPTURE(own);
  const fake::random_step x(seed, 14);
  const auto size = static_cast<std::size_t>(x.where.arena_bytes);
  const launch_plan plan = x.launches({.streams = 3});
  enum class end { done, replayed, stopped, failed, lost };
  for (const end way : {end::done, end::replayed, end::stopped, end::failed, end::lost})
    for (std::size_t last = 1; last < plan.size(); ++last) {
      if (last > 1 && way < end::stopped) break;
      CAPTURE(static_cast<int>(way));
      CAPTURE(last);
      fake::reset(last);
      const fake::resident input(bytes_vector(64, std::byte{7}));
      const cuda_stream home = make_cuda_stream(), other = make_cuda_stream();
      std::stop_source stop;
      std::size_t enqueued = 0;
      {
        cuda_executor run(plan,
                          [&](const cuda_call& c) {
                            fake::hash_kernels{}(c);
                            if (++enqueued == last && way == end::stopped) stop.request_stop();
                            if (enqueued != last || way < end::failed) return;
                            if (way == end::lost) fake::the().fail_at = fake::the().counted;  // the wait that follows
                            throw error("no such algorithm");
                          },
                          {.arena = own ? cuda_memory() : cuda_memory(size, home.get())});
        x.bind(run, input.bytes());
        if (way == end::done) run.run(other.get(), 1);
        if (way == end::replayed) run.capture(1).launch(other.get());
        if (way == end::stopped) CHECK(run.run(other.get(), 1, stop.get_token()) == run_status::cancelled);
        if (way >= end::failed) CHECK_THROWS_AS(run.run(other.get(), 1), execution_error);
      }
      throw_on_cuda_error(cudaDeviceSynchronize());
      CHECK(enqueued == (way < end::stopped ? plan.size() : last));
      CHECK(fake::the().reports.empty());
      CHECK(fake::the().memory.size() == fake::the().lent);
    }
}

}  // namespace

TEST_CASE("the free comes behind the last run without help of the caller") {
  // Of the first, work stays on the caller's stream where a run fails; the second keeps three streams busy.
  for (const bool own : {false, true}) destroy_in_flight(11, own);
  const launch_plan busy = fake::random_step(26, 14).launches({.streams = 3});
  REQUIRE(busy.of_stream(1).size() > 3);
  REQUIRE(detail::cuda::forks_and_joins(busy).joins.size() > 0);
  for (const bool own : {false, true}) destroy_in_flight(26, own);
}

TEST_CASE("where the free cannot wait for the last run, the host does") {
  const fake::random_step x(11, 14);
  fake::reset();
  const fake::resident input(bytes_vector(64, std::byte{7}));
  const cuda_stream home = make_cuda_stream(), other = make_cuda_stream();
  {
    cuda_executor run(x.launches({}), fake::hash_kernels{},
                      {.arena = cuda_memory(static_cast<std::size_t>(x.where.arena_bytes), home.get())});
    x.bind(run, input.bytes());
    run.run(other.get(), 1);
    fake::the().fail_at = fake::the().counted;
    fake::the().fail_with = cudaErrorInvalidConfiguration;
  }
  CHECK(fake::the().failed == "cudaStreamWaitEvent");
  CHECK(fake::calls("cudaEventSynchronize") == 1);
  throw_on_cuda_error(cudaDeviceSynchronize());
  CHECK(fake::the().reports.empty());
}

TEST_CASE("where the host cannot wait for the last use, or its record has failed, it waits for the device") {
  const fake::random_step x(11, 14);
  for (const char* call : {"cudaEventSynchronize", "cudaEventRecord"}) {
    CAPTURE(call);
    const bool pool = call == std::string("cudaEventRecord");
    fake::reset();
    const fake::resident input(bytes_vector(64, std::byte{7}));
    const cuda_stream home = make_cuda_stream(), other = make_cuda_stream();
    for (const bool own : {true, false}) {
      if (!own && !pool) continue;
      cuda_memory arena;
      if (!own) arena = cuda_memory(static_cast<std::size_t>(x.where.arena_bytes), home.get());
      const std::size_t waits = fake::calls("cudaDeviceSynchronize");
      {
        cuda_executor run(x.launches({}), fake::hash_kernels{}, {.arena = std::move(arena)});
        x.bind(run, input.bytes());
        if (!pool) run.run(other.get(), 1);
        if (pool) fake::the().always_fails = call;
        if (pool) CHECK_THROWS_AS(run.run(other.get(), 1), cuda_error);
        fake::the().always_fails = pool ? "" : call;
      }
      fake::the().always_fails = "";
      CHECK(fake::calls("cudaDeviceSynchronize") == waits + 1);
      static_cast<void>(cudaGetLastError());
      throw_on_cuda_error(cudaDeviceSynchronize());
      CHECK(fake::the().reports.empty());
    }
  }
}

TEST_CASE("memory of the caller needs no event, memory of the executor's own one") {
  const fake::random_step x(3, 10);
  fake::reset();
  const cuda_memory mine(static_cast<std::size_t>(x.where.arena_bytes));
  const cuda_arena caller(cuda_memory(mine.bytes()), 1, 1), own(cuda_memory{}, 100, 4096), none(cuda_memory{}, 0, 1);
  CHECK(caller.bytes().data() == mine.data());
  CHECK(own.bytes().size() == 100);
  CHECK(reinterpret_cast<std::uintptr_t>(own.bytes().data()) % 4096 == 0);
  CHECK(none.bytes().empty());
  const cuda_stream s = make_cuda_stream();
  for (const cuda_arena* a : {&caller, &own, &none}) {
    a->acquire(s.get());
    a->release(s.get());
    CHECK(a->num_events() == (a == &own ? 1 : 0));
  }
  CHECK(fake::calls("cudaEventCreateWithFlags") == 1);
  CHECK(fake::calls("cudaEventRecord") == 1);
}

TEST_CASE("the per-thread stream is ordered as another stream, as each thread has its own") {
  fake::reset();
  const cuda_stream s = make_cuda_stream();
  {
    const cuda_arena per_thread(cuda_memory(16, cudaStreamPerThread), 16, 1), plain(cuda_memory(16, s.get()), 16, 1);
    const std::size_t waits = fake::calls("cudaStreamWaitEvent"), records = fake::calls("cudaEventRecord");
    plain.acquire(s.get());
    plain.release(s.get());
    CHECK(fake::calls("cudaStreamWaitEvent") == waits);
    CHECK(fake::calls("cudaEventRecord") == records);
    per_thread.acquire(cudaStreamPerThread);
    per_thread.release(cudaStreamPerThread);
    CHECK(fake::calls("cudaStreamWaitEvent") == waits + 1);
    CHECK(fake::calls("cudaEventRecord") == records + 1);
  }
  throw_on_cuda_error(cudaDeviceSynchronize());
  CHECK(fake::the().held() == 1);
}
