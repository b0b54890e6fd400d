// SPDX-License-Identifier: BSL-1.0

// Schedules with copies to the host on the CUDA executor, without a GPU: the fake runtime reports uses of either arena
// that are not in order, and pinned memory that is freed too early.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/execute/cuda.cuh"
#include "support/fake_cuda.hpp"
#include "support/fake_cuda_steps.hpp"

using namespace remat;
namespace fake = remat::test::fake_cuda;
using fake::bytes_vector;

namespace {

const bytes_vector content(64, std::byte{7});

/// `hash_kernels`, and copies that may fail.
struct own_copies : fake::hash_kernels {
  std::size_t* copied = nullptr;
  bool* fails = nullptr;
  bool throws = false;

  cudaError_t copy(const cuda_copy& c) const {
    if (fails != nullptr && *fails) {
      if (throws) throw std::runtime_error("the link is down");
      return cudaErrorLaunchFailure;
    }
    if (copied != nullptr) ++*copied;
    return c.from.empty() ? cudaSuccess
                          : cudaMemcpyAsync(c.to.data(), c.from.data(), c.from.size(), cudaMemcpyDefault, c.stream);
  }
};
static_assert(copies_for<own_copies, cudaStream_t>);
static_assert(!copies_for<fake::hash_kernels, cudaStream_t>);

/// The first copy of the plan; the number of launches if there is none.
std::size_t first_copy(const launch_plan& plan) {
  std::size_t i = 0;
  while (i < plan.size() && !plan.launches()[i].is_copy()) ++i;
  return i;
}

}  // namespace

TEST_CASE("steps with copies compute what the graph computes, eager and replayed, whatever the order of the device") {
  std::size_t copies = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    const fake::copying_step x(seed, 4 + static_cast<std::uint32_t>(seed % 14));
    fake::reset(seed);
    {
      const fake::resident input(content);
      std::size_t copied = 0;
      own_copies kernels;
      kernels.copied = &copied;
      const bool own = seed % 2 == 0;
      launch_options options;
      if (seed % 3 == 0) options.bound_outputs = x.outputs();
      fake::output_memory outputs(x, std::byte{1});
      const auto run_with = [&](auto k) {
        cuda_executor run(x.launches(options), k, {.timing = seed % 5 == 0, .ranges = seed % 7 == 0});
        if (!options.bound_outputs.empty()) outputs.bind(run);
        x.bind(run, input.bytes());
        for (const launch& l : run.plan().launches()) copies += l.is_copy();
        CHECK(fake::calls("cudaHostAlloc") == (run.plan().host_arena_bytes() == 0 ? 0 : 1));
        const cuda_stream stream = make_cuda_stream();
        bytes_vector got[4];
        run.run(stream.get(), 10);
        x.fetch(run, stream.get(), got[0]);
        run.run(stream.get(), 11);  // behind the first, without waiting
        x.fetch(run, stream.get(), got[1]);
        const cuda_captured_step captured = run.capture(12);
        const std::size_t enqueued = fake::calls("cudaMemcpyAsync");
        captured.launch(stream.get());
        x.fetch(run, stream.get(), got[2]);
        captured.launch(stream.get());
        x.fetch(run, stream.get(), got[3]);
        CHECK(fake::calls("cudaMemcpyAsync") == enqueued);
        throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
        for (std::size_t i = 0; i < 4; ++i) CHECK(got[i] == x.expected(i == 3 ? 12 : 10 + i, content));
        if (run.timing()) CHECK(run.times().size() == run.plan().size());
        CHECK(fake::calls("cudaHostAlloc") == (run.plan().host_arena_bytes() == 0 ? 0 : 1));
      };
      if (own) {
        run_with(kernels);
        CHECK(copied % 3 == 0);  // two runs and a capture
      } else {
        run_with(fake::hash_kernels{});
      }
    }
    REQUIRE(fake::the().held() == 0);
  }
  CHECK(copies > 400);
}

TEST_CASE("debug modes let right schedules with copies pass") {
  for (std::uint64_t seed = 0; seed < 40; ++seed)
    for (const cuda_debug debug : {cuda_debug::synchronize, cuda_debug::poison, cuda_debug::check_writes}) {
      CAPTURE(seed);
      const fake::copying_step x(seed, 10);
      fake::reset(seed);
      const fake::resident input(content);
      cuda_executor run(x.launches(), fake::hash_kernels{}, {.debug = debug});
      x.bind(run, input.bytes());
      bytes_vector got;
      run.run(nullptr, 1);
      x.fetch(run, nullptr, got);
      throw_on_cuda_error(cudaStreamSynchronize(nullptr));
      CHECK(got == x.expected(1, content));
    }
}

namespace {

/// `hash_kernels`, and copies that give their stream something to do for tensors of 0 bytes, too.
struct marked_copies : fake::hash_kernels {
  void copy(const cuda_copy& c) const {
    if (c.from.empty())
      fake::enqueue(c.stream, [] {});
    else
      throw_on_cuda_error(cudaMemcpyAsync(c.to.data(), c.from.data(), c.from.size(), cudaMemcpyDefault, c.stream));
  }
};

/// The caller writes the input before, between and after two steps, and reads the outputs. `replayed`: the steps are
/// replays of a capture.
void run_two_steps(const fake::copying_step& x, bool replayed) {
  const cuda_memory input(64);
  const cuda_stream stream = make_cuda_stream();
  cuda_executor run(x.launches(), marked_copies{});
  x.bind(run, input.bytes());
  const auto feed = [&] { throw_on_cuda_error(cudaMemsetAsync(input.data(), 7, input.size(), stream.get())); };
  bytes_vector got;
  feed();
  std::optional<cuda_captured_step> captured;
  if (replayed) captured.emplace(run.capture(1));
  for (int i = 0; i < 2; ++i) {
    if (replayed)
      captured->launch(stream.get());
    else
      run.run(stream.get(), 1);
    feed();
  }
  x.fetch(run, stream.get(), got);
  throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
}

}  // namespace

TEST_CASE("a step with copies without one of its waits is mostly a race, and no wait follows from others") {
  fake::waits_count all;
  for (std::uint64_t seed = 0; seed < 40; ++seed)
    for (const bool replayed : {false, true}) {
      CAPTURE(seed);
      const fake::copying_step x(seed, 6 + static_cast<std::uint32_t>(seed % 8));
      all.add(
          [&](std::size_t dropped) { return fake::without_wait(seed, dropped, [&] { run_two_steps(x, replayed); }); });
    }
  CHECK(all.waits > 300);
  CHECK(all.implied == 0);
  // Not noticed: a copy that begins before a compute that is listed earlier and uses other bytes.
  CHECK(all.noticed * 10 > all.waits * 6);
}

TEST_CASE("a copy that fails names the tensor, and the next step is right") {
  const fake::copying_step x(3, 10);
  const launch_plan plan = x.launches();
  const std::size_t copy = first_copy(plan);
  REQUIRE(copy < plan.size());
  const launch& l = plan.launches()[copy];
  for (const int how : {0, 1, 2}) {  // the runtime's copy; an error that a copy of the kernels' returns, or throws
    CAPTURE(how);
    fake::reset(1);
    const fake::resident input(content);
    const cuda_stream stream = make_cuda_stream();
    bool fails = true;
    own_copies kernels;
    kernels.fails = &fails;
    kernels.throws = how == 2;
    const auto test = [&](auto k) {
      cuda_executor run(plan, k);
      x.bind(run, input.bytes());
      for (int i = 0; i < 3; ++i) {
        fails = true;
        if (how == 0) fake::the().always_fails = "cudaMemcpyAsync";
        for (const bool captures : {false, true}) try {
            if (captures)
              static_cast<void>(run.capture(1));
            else
              run.run(stream.get(), 1);
            FAIL("no error");
          } catch (const execution_error& e) {
            REQUIRE(e.tensor());
            CHECK(*e.tensor() == plan.copied(l));
            CHECK(e.step() == l.step);
            CHECK(std::string(e.what()).find(plan.label(l) + " in step " + std::to_string(l.step) +
                                             ": copying failed: ") == 0);
          }
        fails = false;
        fake::the().always_fails = "";
        bytes_vector got;
        run.run(stream.get(), 1);
        x.fetch(run, stream.get(), got);
        throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
        CHECK(got == x.expected(1, content));
      }
    };
    if (how == 0)
      test(fake::hash_kernels{});
    else
      test(kernels);
  }
}

TEST_CASE("a fault at any call of the runtime loses nothing") {
  const fake::copying_step x(5, 10);
  std::size_t faults = 0;
  std::set<std::string> failed;
  for (std::size_t at = 0;; ++at) {
    CAPTURE(at);
    fake::reset(at);
    fake::the().fail_at = at;
    bool thrown = false;
    {
      const fake::resident input(content);
      try {
        cuda_executor run(x.launches(), fake::hash_kernels{});
        x.bind(run, input.bytes());
        run.run(nullptr, 1);
        const cuda_captured_step captured = run.capture();
        captured.launch(nullptr, 2);
      } catch (const error&) {
        thrown = true;
      }
      failed.insert(fake::the().failed);
      fake::the().fail_at = ~std::size_t{0};
      static_cast<void>(cudaDeviceSynchronize());
    }
    REQUIRE(fake::the().held() == 0);
    if (!thrown && fake::the().failed.empty()) break;
    faults += thrown;
  }
  CHECK(faults > 50);
  CHECK(failed.count("cudaHostAlloc") == 1);
  CHECK(failed.count("cudaMemcpyAsync") == 1);
}

TEST_CASE("pinned memory is the caller's or the executor's, which frees it behind the last work") {
  enum class device_memory { own, pool, callers };
  for (const device_memory kind : {device_memory::own, device_memory::pool, device_memory::callers})
    for (const bool own_host : {false, true})
      for (const int use : {0, 1, 2, 3}) {  // a run, one on the pool's stream, a replay, a part of the caller's graph
        CAPTURE(static_cast<int>(kind));
        CAPTURE(own_host);
        CAPTURE(use);
        fake::reset(7);
        const fake::copying_step x(7, 12);
        const auto bytes = static_cast<std::size_t>(x.where.arena_bytes);
        {
          const fake::resident input(content);
          const fake::resident memory{bytes_vector(bytes)};
          const cuda_stream home = make_cuda_stream(), stream = make_cuda_stream();
          std::optional<cuda_host_memory> pinned;
          cuda_options options;
          if (kind == device_memory::pool) options.arena = cuda_memory(bytes, home.get());
          if (kind == device_memory::callers) options.arena = cuda_memory(memory.bytes());
          if (!own_host) {
            pinned.emplace(static_cast<std::size_t>(x.on_host.arena_bytes));
            options.host_arena = cuda_host_memory(pinned->bytes());
          }
          cuda_graph graph;
          cuda_graph_exec exec;
          {
            cuda_executor run(x.launches(), fake::hash_kernels{}, std::move(options));
            x.bind(run, input.bytes());
            CHECK(run.host_arena().size() == static_cast<std::size_t>(x.on_host.arena_bytes));
            CHECK(fake::calls("cudaHostAlloc") == 1);
            if (use <= 1) {
              run.run(use == 0 ? stream.get() : home.get(), 1);
            } else if (use == 2) {
              const cuda_captured_step captured = run.capture(1);
              captured.launch(stream.get());
            } else {
              cudaGraph_t g{};
              throw_on_cuda_error(cudaGraphCreate(&g, 0));
              graph = cuda_graph(g);
              static_cast<void>(run.capture(1).add_to(graph.get()));
              exec = make_cuda_graph_exec(graph);
              if (kind == device_memory::pool) {  // behind the allocation
                const cuda_event e = make_cuda_event();
                throw_on_cuda_error(cudaEventRecord(e.get(), home.get()));
                throw_on_cuda_error(cudaStreamWaitEvent(stream.get(), e.get(), 0));
              }
              throw_on_cuda_error(cudaGraphLaunch(exec.get(), stream.get()));
            }
          }  // in flight
          CHECK(fake::calls("cudaFreeHost") == (own_host ? 1 : 0));
          throw_on_cuda_error(cudaDeviceSynchronize());
        }
        CHECK(fake::the().held() == 0);
      }
}

TEST_CASE("an arena on the host that does not fit is refused") {
  const fake::copying_step x(3, 10);
  fake::reset(1);
  const std::int64_t bytes = x.on_host.arena_bytes;
  REQUIRE(bytes > 1);
  const auto make = [&](cuda_options options) {
    const cuda_executor run(x.launches(), fake::hash_kernels{}, std::move(options));
  };
  cuda_options little, small;
  little.host_arena_budget = bytes - 1;
  CHECK_THROWS_WITH_AS(make(std::move(little)),
                       ("the host's arena has " + std::to_string(bytes) + " bytes; its budget is " +
                        std::to_string(bytes - 1) + " bytes")
                           .c_str(),
                       bad_argument);
  const cuda_host_memory pinned(static_cast<std::size_t>(bytes));
  small.host_arena = cuda_host_memory(pinned.bytes().first(1));
  CHECK_THROWS_WITH_AS(
      make(std::move(small)),
      ("the host's arena has 1 byte; the memory plan needs " + std::to_string(bytes) + " bytes").c_str(), bad_argument);
}

TEST_CASE("pageable memory is refused as the arena on the host") {
  const fake::copying_step x(3, 10);
  fake::reset(1);
  bytes_vector pageable(static_cast<std::size_t>(x.on_host.arena_bytes));
  cuda_options options;
  options.host_arena = cuda_host_memory(std::span(pageable));
  CHECK_THROWS_WITH_AS(cuda_executor(x.launches(), fake::hash_kernels{}, std::move(options)),
                       "the arena on the host is not pinned: take it from cudaHostAlloc, or call cudaHostRegister",
                       bad_argument);
  // Only its first bytes are pinned.
  const cuda_host_memory pinned(64);
  cuda_options partly;
  partly.host_arena = cuda_host_memory(std::span(pinned.bytes().data(), 1 << 16));
  CHECK_THROWS_AS(cuda_executor(x.launches(), fake::hash_kernels{}, std::move(partly)), bad_argument);
  CHECK(fake::the().list.empty());
}

TEST_CASE("copies run on two streams of the executor or the caller") {
  const fake::copying_step x(3, 10);
  fake::reset(1);
  const fake::resident input(content);
  cuda_executor run(x.launches(), fake::hash_kernels{});
  CHECK(run.num_own_streams() == 2);
  const cuda_stream out = make_cuda_stream(), in = make_cuda_stream();
  cuda_executor given(x.launches(), fake::hash_kernels{}, {.streams = {out.get(), in.get()}});
  CHECK(given.num_own_streams() == 0);
  x.bind(given, input.bytes());
  bytes_vector got;
  given.run(nullptr, 1);
  x.fetch(given, nullptr, got);
  throw_on_cuda_error(cudaStreamSynchronize(nullptr));
  CHECK(got == x.expected(1, content));
}

TEST_CASE("owners of pinned memory give it back once") {
  fake::reset();
  {
    cuda_host_memory a(100), b(10);
    CHECK(a.size() == 100);
    CHECK(a.is_owned());
    std::fill(a.bytes().begin(), a.bytes().end(), std::byte{1});  // the host may write to it
    cuda_host_memory c(std::move(a));
    CHECK(a.size() == 0);  // NOLINT: the state after a move is promised
    CHECK_FALSE(a.is_owned());
    b = std::move(c);
    CHECK(fake::calls("cudaFreeHost") == 1);
    CHECK(b.size() == 100);
    const cuda_host_memory view(b.bytes()), none(std::size_t{0});
    CHECK_FALSE(view.is_owned());
    CHECK_FALSE(none.is_owned());
    CHECK(view.bytes().data() == b.bytes().data());
  }
  CHECK(fake::calls("cudaFreeHost") == 2);
  CHECK(fake::the().held() == 0);
}
