// SPDX-License-Identifier: BSL-1.0

// The CUDA executor without a GPU: against a runtime that orders work as little as CUDA does.
#include "remat/execute/cuda.cuh"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <set>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "support/fake_cuda.hpp"
#include "support/fake_cuda_steps.hpp"
#include "support/random_graph.hpp"
#include "support/random_layout.hpp"
#include "support/schedules.hpp"

using namespace remat;
using namespace remat::detail;
namespace fake = remat::test::fake_cuda;

namespace {

std::atomic<std::size_t> allocations{0};

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (fake::the().inside == 0) ++allocations;
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace {

using bytes = fake::bytes_vector;
using hashing_kernels = fake::hash_kernels;

/// A random step with its parameters and inputs in memory of the present device.
struct example : fake::random_step {
  bytes content = bytes(64, std::byte{7});
  mutable std::unique_ptr<fake::resident> on_device;

  explicit example(std::uint64_t seed, std::uint32_t operations = 12) : random_step(seed, operations) {}

  [[nodiscard]] launch_plan launches(std::uint32_t streams) const {
    return random_step::launches({.streams = streams});
  }
  template <class Executor>
  void bind(Executor& e) const {
    if (!on_device || !on_device->is_there()) on_device = std::make_unique<fake::resident>(content);
    random_step::bind(e, on_device->bytes());
  }
  [[nodiscard]] bytes expected(std::uint64_t seed) const { return random_step::expected(seed, content); }
};

/// Two branches of two operations that meet: a, b on one side, c on the other, d after both.
struct diamond {
  training_graph graph;
  tensor_id x, a, b, c, d;
  diamond() {
    x = graph.add_tensor({.name = "x", .bytes = 16, .kind = tensor_kind::input});
    a = graph.add_tensor({.name = "a", .bytes = 16});
    b = graph.add_tensor({.name = "b", .bytes = 16});
    c = graph.add_tensor({.name = "c", .bytes = 16});
    d = graph.add_tensor({.name = "d", .bytes = 16});
    graph.add_operation({.name = "first", .inputs = {x}, .outputs = {a}, .seconds = 1});
    graph.add_operation({.name = "left", .inputs = {a}, .outputs = {b}, .seconds = 4});
    graph.add_operation({.name = "right", .inputs = {a}, .outputs = {c}, .seconds = 4, .workspace = 8});
    graph.add_operation({.name = "last", .inputs = {b, c}, .outputs = {d}, .seconds = 1});
    graph.add_final_output(d);
  }
  [[nodiscard]] launch_plan launches(std::uint32_t streams) const {
    const problem p(graph, measured_cost{});
    schedule plan;
    for (std::uint32_t o = 0; o < 4; ++o) plan.compute(static_cast<op_id>(o));
    const lifetimes lives = lifetimes_of(p, plan);
    const test::placed at = test::one_behind_the_other(lives, 16);
    return launch_plan(graph, p, plan.steps, {at.offsets, at.arena_bytes, 16}, streams);
  }
};

}  // namespace

TEST_CASE("steps on several streams compute what the graph computes, whatever the order of the device") {
  std::size_t events = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    const example x(seed, 4 + static_cast<std::uint32_t>(seed % 20));
    const auto streams = static_cast<std::uint32_t>(1 + seed % 4);
    fake::reset(seed);
    {
      cuda_executor run(x.launches(streams), hashing_kernels{});
      x.bind(run);
      const cuda_stream first = make_cuda_stream(), second = make_cuda_stream();
      const cuda_event between = make_cuda_event();
      std::array<bytes, 4> got;
      run.run(first.get(), 10);
      x.fetch(run, first.get(), got[0]);
      run.run(first.get(), 11);  // behind the first, without waiting
      x.fetch(run, first.get(), got[1]);
      throw_on_cuda_error(cudaEventRecord(between.get(), first.get()));
      throw_on_cuda_error(cudaStreamWaitEvent(second.get(), between.get(), 0));
      run.run(second.get(), 12);
      x.fetch(run, second.get(), got[2]);
      const cuda_captured_step captured = run.capture(13);
      captured.launch(second.get());
      x.fetch(run, second.get(), got[3]);
      throw_on_cuda_error(cudaStreamSynchronize(second.get()));
      for (std::size_t i = 0; i < got.size(); ++i) {
        CAPTURE(i);
        CHECK(got[i] == x.expected(10 + i));
      }
      events += run.num_events();
    }
    REQUIRE(fake::the().held() == 0);
  }
  CHECK(events > 300);
}

TEST_CASE("one stream in memory of the caller needs no events; several need those between them and to the caller's") {
  const diamond x;
  fake::reset();
  {
    const fake::resident data{bytes(16)}, arena{bytes(static_cast<std::size_t>(x.launches(1).arena_bytes()))};
    cuda_executor run(x.launches(1), hashing_kernels{}, {.arena = cuda_memory(arena.bytes())});
    run.bind(x.x, data.bytes());
    run.run(nullptr);
    CHECK(run.num_events() == 0);
    CHECK(run.num_own_streams() == 0);
    CHECK(fake::calls("cudaEventCreateWithFlags") == 0);
    CHECK(fake::calls("cudaEventRecord") == 0);
    CHECK(fake::calls("cudaStreamWaitEvent") == 0);
    CHECK(fake::calls("cudaMalloc") == 0);
    fake::run_pending();
  }
  fake::reset();
  {
    // first and one side on stream 0, the other side on stream 1: one event there, one back. Stream 1 begins behind the
    // first, so behind the caller's work, and stream 0 ends behind stream 1. One more notes the arena's last use.
    const fake::resident data{bytes(16)};
    cuda_executor run(x.launches(2), hashing_kernels{});
    run.bind(x.x, data.bytes());
    CHECK(run.num_events() == 3);
    CHECK(fake::calls("cudaEventCreateWithFlags") == 3);
    CHECK(fake::calls("cudaStreamCreateWithFlags") == 1);
    for (int i = 0; i < 5; ++i) run.run(nullptr);
    CHECK(fake::calls("cudaEventCreateWithFlags") == 3);
    CHECK(fake::calls("cudaEventRecord") == 15);
    CHECK(fake::calls("cudaStreamWaitEvent") == 10);
    CHECK(fake::calls("cudaStreamSynchronize") == 0);
    CHECK(fake::calls("cudaMalloc") == 1);
    fake::run_pending();
  }
  CHECK(fake::the().held() == 0);
}

TEST_CASE("streams that begin on their own wait for the caller, and it waits for those that end on their own") {
  training_graph g;
  for (int i = 0; i < 3; ++i) {
    const tensor_id t = g.add_tensor({.name = "t", .bytes = 8});
    g.add_operation({.name = "make", .outputs = {t}, .seconds = 1});
    g.add_final_output(t);
  }
  const problem p(g, measured_cost{});
  schedule plan;
  for (std::uint32_t o = 0; o < 3; ++o) plan.compute(static_cast<op_id>(o));
  const test::placed at = test::one_behind_the_other(lifetimes_of(p, plan), 8);
  const launch_plan launches(g, p, plan.steps, {at.offsets, at.arena_bytes, 8}, 4);
  const detail::cuda::fork_and_join joints = detail::cuda::forks_and_joins(launches);
  CHECK(joints.forks == std::vector<std::uint32_t>{1, 2});
  CHECK(joints.joins == std::vector<std::uint32_t>{1, 2});
  fake::reset();
  cuda_executor run(launches, hashing_kernels{});
  CHECK(run.num_events() == 4);  // the begin, two ends, the arena's last use
}

TEST_CASE("a run allocates nothing") {
  const example x(3, 30);
  fake::reset();
  cuda_executor run(x.launches(3), [](const cuda_call&) {});
  x.bind(run);
  run.run(nullptr, 1);
  const auto counts = [] {
    return std::array{fake::calls("cudaMalloc"), fake::calls("cudaMallocAsync"),
                      fake::calls("cudaEventCreateWithFlags"), fake::calls("cudaStreamCreateWithFlags"),
                      fake::calls("cudaStreamSynchronize")};
  };
  const auto before = counts();
  const std::size_t host = allocations;
  for (std::uint64_t i = 0; i < 20; ++i) run.run(nullptr, i);
  CHECK(allocations == host);
  CHECK(counts() == before);
}

TEST_CASE("a fault at any call of the runtime is an error, nothing is lost, and the next step is right") {
  const example x(17, 16);
  const bytes first = x.expected(1), second = x.expected(2);
  std::size_t faults = 0;
  std::set<std::string> failed;
  for (std::size_t at = 0;; ++at) {
    CAPTURE(at);
    fake::reset(at);
    fake::the().fail_at = at;
    fake::the().fail_with = cudaErrorInvalidConfiguration;
    bool thrown = false;
    {
      const cuda_stream stream = [] {  // not the executor's: never made to fail
        const std::size_t n = std::exchange(fake::the().fail_at, ~std::size_t{0});
        cuda_stream s = make_cuda_stream();
        fake::the().fail_at = n;
        fake::the().counted = 0;
        return s;
      }();
      std::unique_ptr<cuda_seed> seed;
      std::unique_ptr<cuda_executor<hashing_kernels>> run;
      std::unique_ptr<cuda_captured_step> captured;
      try {
        seed = std::make_unique<cuda_seed>();
        run = std::make_unique<cuda_executor<hashing_kernels>>(x.launches(3), hashing_kernels{seed.get(), nullptr},
                                                               cuda_options{.timing = true, .seed = seed.get()});
        x.bind(*run);
        run->run(stream.get(), 1);
        captured = std::make_unique<cuda_captured_step>(run->capture());
        captured->launch(stream.get(), 2);
      } catch (const execution_error& e) {
        thrown = true;
        const std::string text = e.what();
        CHECK(text.find("operation " + std::to_string(index(e.operation()))) != std::string::npos);
        CHECK(text.find("invalid configuration argument") != std::string::npos);
        CHECK_THROWS_AS(std::rethrow_if_nested(e), cuda_error);
      } catch (const cuda_error& e) {
        thrown = true;
        CHECK(e.code() == cudaErrorInvalidConfiguration);
      }
      fake::the().fail_at = ~std::size_t{0};
      CHECK(thrown == !fake::the().failed.empty());
      CHECK(cudaPeekAtLastError() == cudaSuccess);
      if (thrown) {
        ++faults;
        failed.insert(fake::the().failed);
      }
      if (run) {
        bytes eager, replayed;
        x.bind(*run);
        run->run(stream.get(), 1);
        x.fetch(*run, stream.get(), eager);
        const cuda_captured_step again = run->capture();
        again.launch(stream.get(), 2);
        x.fetch(*run, stream.get(), replayed);
        REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
        CHECK(eager == first);
        CHECK(replayed == second);
      }
    }
    REQUIRE(fake::the().held() == 0);
    if (!thrown) break;
  }
  CHECK(faults > 100);
  for (const char* name :
       {"cudaMalloc", "cudaStreamCreateWithFlags", "cudaEventCreateWithFlags", "cudaStreamIsCapturing",
        "cudaMemsetAsync", "cudaEventRecord", "cudaEventRecordWithFlags", "cudaStreamWaitEvent",
        "cudaStreamBeginCapture", "cudaStreamEndCapture", "cudaGraphInstantiate", "cudaGraphLaunch"})
    CHECK_MESSAGE(failed.count(name) == 1, name);
}

TEST_CASE("a kernel that throws, or leaves an error, is named; the arena is usable after") {
  const diamond x;
  for (const int streams : {1, 2, 3}) {
    fake::reset();
    int bad = 0;
    const fake::resident data{bytes(16, std::byte{3})};
    cuda_executor run(x.launches(static_cast<std::uint32_t>(streams)), [&](const cuda_call& c) {
      if (index(c.operation) == 2 && bad == 1) throw std::runtime_error("no such algorithm");
      if (index(c.operation) == 2 && bad == 2) {
        fake::the().last = cudaErrorInvalidConfiguration;  // as <<<…>>> leaves it
        return;
      }
      if (index(c.operation) == 2 && bad == 3) throw 3;
      hashing_kernels{}(c);
    });
    run.bind(x.x, data.bytes());
    bytes good, after;
    const auto fetch = [&](bytes& to) {
      run.run(nullptr, 5);
      REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
      to = fake::peek(run.output(x.d));
    };
    fetch(good);
    bad = 1;
    CHECK_THROWS_WITH_AS(run.run(nullptr), "operation 2 (right) in step 2: its kernel failed: no such algorithm",
                         execution_error);
    bad = 2;
    try {
      run.run(nullptr);
      FAIL("the error was not seen");
    } catch (const execution_error& e) {
      CHECK(index(e.operation()) == 2);
      const std::string text = e.what();
      CHECK(text.find("operation 2 (right) in step 2: its kernel failed: enqueuing it: invalid configuration argument "
                      "(cudaErrorInvalidConfiguration, cuda.cuh:") == 0);
      try {
        std::rethrow_if_nested(e);
      } catch (const cuda_error& inner) {
        CHECK(inner.code() == cudaErrorInvalidConfiguration);
      }
    }
    bad = 3;
    CHECK_THROWS_WITH_AS(run.run(nullptr), "operation 2 (right) in step 2: its kernel failed", execution_error);
    CHECK_THROWS_AS(static_cast<void>(run.capture()), execution_error);
    bad = 0;
    fetch(after);
    CHECK(after == good);
    const cuda_captured_step captured = run.capture(5);
    captured.launch(nullptr);
    REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
    CHECK(fake::peek(run.output(x.d)) == good);
  }
}

TEST_CASE("a stop request ends the run before its next launch, and the next run is right") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const example x(seed, 12);
    fake::reset(seed);
    {
      const cuda_stream stream = make_cuda_stream();
      const launch_plan plan = x.launches(static_cast<std::uint32_t>(1 + seed % 4));
      for (std::size_t last = 0; last < plan.size(); last += 3) {
        std::stop_source stop;
        std::size_t enqueued = 0;
        cuda_executor run(plan, [&](const cuda_call& c) {
          hashing_kernels{}(c);
          if (enqueued++ == last) stop.request_stop();
        });
        x.bind(run);
        bytes got;
        const run_status ended = run.run(stream.get(), 1, stop.get_token());
        CHECK(ended == (last + 1 == plan.size() ? run_status::done : run_status::cancelled));
        CHECK(enqueued == last + 1);
        CHECK(run.run(stream.get(), 2, stop.get_token()) == run_status::cancelled);
        CHECK(enqueued == last + 1);
        CHECK(run.run(stream.get(), 3) == run_status::done);
        x.fetch(run, stream.get(), got);
        throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
        CHECK(got == x.expected(3));
      }
    }
    REQUIRE(fake::the().held() == 0);
  }
}

TEST_CASE("a stop request does not break a capture") {
  const example x(5, 12);
  fake::reset();
  {
    std::stop_source stop;
    stop.request_stop();
    const cuda_stream stream = make_cuda_stream();
    cuda_executor run(x.launches(3), hashing_kernels{});
    x.bind(run);
    throw_on_cuda_error(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    CHECK(run.run(stream.get(), 4, stop.get_token()) == run_status::done);
    cudaGraph_t graph{};
    throw_on_cuda_error(cudaStreamEndCapture(stream.get(), &graph));
    const cuda_graph owned(graph);
    const cuda_graph_exec exec = make_cuda_graph_exec(owned);
    throw_on_cuda_error(cudaGraphLaunch(exec.get(), stream.get()));
    bytes got;
    x.fetch(run, stream.get(), got);
    throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
    CHECK(got == x.expected(4));
  }
  CHECK(fake::the().held() == 0);
}

TEST_CASE("a run while another one is enqueuing is refused, and leaves that one undisturbed") {
  const diamond x;
  fake::reset();
  const fake::resident data{bytes(16)};
  std::function<void()> inner = [] {};
  cuda_executor run(x.launches(2), [&](const cuda_call& c) {
    hashing_kernels{}(c);
    inner();
  });
  run.bind(x.x, data.bytes());
  std::size_t refused = 0;
  inner = [&] {
    for (const int call : {0, 1, 2}) {
      try {
        if (call == 0) run.run(nullptr);
        if (call == 1) (void)run.capture();
        if (call == 2) run.bind(x.x, data.bytes());
      } catch (const bad_argument& e) {
        refused += std::string(e.what()).find("is running a training step already") != std::string::npos;
      }
    }
  };
  CHECK(run.run(nullptr) == run_status::done);
  CHECK(refused == 12);
  fake::run_pending();
  inner = [] {};
  CHECK(run.run(nullptr) == run_status::done);
  fake::run_pending();
}

TEST_CASE("where waiting for a failed step's work fails too, the next step waits") {
  const diamond x;
  fake::reset();
  bool bad = true;
  const fake::resident data{bytes(16, std::byte{3})};
  cuda_executor run(x.launches(2), [&](const cuda_call& c) {
    hashing_kernels{}(c);
    if (bad && index(c.operation) == 3) {
      fake::the().fail_at = fake::the().counted;  // the wait that follows the throw
      throw std::runtime_error("no such algorithm");
    }
  });
  run.bind(x.x, data.bytes());
  CHECK_THROWS_WITH_AS(run.run(nullptr, 5), "operation 3 (last) in step 3: its kernel failed: no such algorithm",
                       execution_error);
  CHECK(fake::the().failed == "cudaStreamSynchronize");
  CHECK(fake::the().first_pending < fake::the().list.size());
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  bad = false;
  const std::size_t waits = fake::calls("cudaStreamSynchronize");
  SUBCASE("a run") { run.run(nullptr, 5); }
  SUBCASE("a capture") {
    const cuda_captured_step captured = run.capture(5);
    captured.launch(nullptr);
  }
  CHECK(fake::calls("cudaStreamSynchronize") == waits + 1);
  run.run(nullptr, 5);
  CHECK(fake::calls("cudaStreamSynchronize") == waits + 1);
  fake::run_pending();
}

TEST_CASE("an error from before the step is not put on the step's operations") {
  const diamond x;
  fake::reset();
  const fake::resident data{bytes(16)};
  cuda_executor run(x.launches(2), hashing_kernels{});
  run.bind(x.x, data.bytes());
  fake::the().last = cudaErrorInvalidConfiguration;
  CHECK_THROWS_AS(run.run(nullptr), cuda_error);
  run.run(nullptr);
  fake::run_pending();
}

TEST_CASE("a device whose context is lost says so at every step") {
  const diamond x;
  fake::reset();
  {
    const fake::resident data{bytes(16)};
    cuda_executor run(x.launches(2), hashing_kernels{});
    run.bind(x.x, data.bytes());
    run.run(nullptr);
    fake::the().sticky = fake::the().last = cudaErrorIllegalAddress;
    CHECK_THROWS_AS(run.run(nullptr), cuda_error);
    CHECK_THROWS_AS(run.run(nullptr), cuda_error);
    CHECK_THROWS_AS(static_cast<void>(run.capture()), cuda_error);
  }
  CHECK(fake::the().held() == 0);
}

TEST_CASE("a captured step is replayed a thousand times, each with its seed") {
  const example x(29, 18);
  fake::reset();
  const cuda_seed seed;
  cuda_executor run(x.launches(3), hashing_kernels{&seed, nullptr}, {.seed = &seed});
  x.bind(run);
  const cuda_captured_step captured = run.capture();
  CHECK(captured.graph() != nullptr);
  bytes got;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::uint64_t step = i * i * 0x10001;
    captured.launch(nullptr, step);
    x.fetch(run, nullptr, got);
    if (i % 100 == 0) {
      run.run(nullptr, step);  // a step in between does no harm
      bytes eager;
      x.fetch(run, nullptr, eager);
      REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
      CHECK(eager == got);
    }
    REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
    REQUIRE(got == x.expected(step));
  }
}

TEST_CASE("seeds on the device are those on the host") {
  for (std::uint64_t step = 0; step < 50; ++step)
    for (std::uint32_t o = 0; o < 50; ++o)
      CHECK(cuda_kernel_seed(step * step, op_id{o}) == kernel_seed(step * step, op_id{o}));
  static_assert(cuda_kernel_seed(7, op_id{3}) == kernel_seed(7, op_id{3}));
}

TEST_CASE("the device's seed is written as it is") {
  fake::reset();
  const cuda_seed seed;
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{258}, ~std::uint64_t{0},
                                    std::uint64_t{0x0102030405060708}, std::uint64_t{0xff00ff00aa}}) {
    seed.set(value, nullptr);
    fake::run_pending();
    std::uint64_t written = 0;
    REQUIRE(cudaMemcpy(&written, seed.get(), sizeof written, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(written == value);
  }
}

TEST_CASE("a step can be part of the caller's own capture") {
  const example x(31, 14);
  fake::reset();
  cuda_executor run(x.launches(3), hashing_kernels{});
  x.bind(run);
  const cuda_stream stream = make_cuda_stream();
  bytes got;
  REQUIRE(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  run.run(stream.get(), 40);
  x.fetch(run, stream.get(), got);
  cudaGraph_t graph{};
  REQUIRE(cudaStreamEndCapture(stream.get(), &graph) == cudaSuccess);
  const cuda_graph owned(graph);
  const cuda_graph_exec exec = make_cuda_graph_exec(owned);
  fake::run_pending();
  CHECK(got.empty());
  REQUIRE(cudaGraphLaunch(exec.get(), stream.get()) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
  CHECK(got == x.expected(40));
}

TEST_CASE("a kernel that waits during a capture is named, and the streams can be captured again") {
  const diamond x;
  fake::reset();
  bool waits = true;
  const fake::resident data{bytes(16)};
  cuda_executor run(x.launches(2), [&](const cuda_call& c) {
    if (waits && index(c.operation) == 1) static_cast<void>(cudaStreamSynchronize(c.stream));
    hashing_kernels{}(c);
  });
  run.bind(x.x, data.bytes());
  try {
    static_cast<void>(run.capture());
    FAIL("captured");
  } catch (const execution_error& e) {
    CHECK(index(e.operation()) == 1);
  }
  CHECK(fake::the().graphs.empty());
  waits = false;
  run.run(nullptr, 1);
  REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
  const bytes eager = fake::peek(run.output(x.d));
  const cuda_captured_step captured = run.capture(1);
  captured.launch(nullptr);
  REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
  CHECK(fake::peek(run.output(x.d)) == eager);
}

TEST_CASE("the arena is the caller's memory, a pool's or one allocation, of exactly the plan's bytes") {
  const example x(5, 10);
  const auto size = static_cast<std::size_t>(x.where.arena_bytes);
  REQUIRE(size > 1);
  fake::reset();
  {
    fake::the().most_bytes = size;
    cuda_executor own(x.launches(2), hashing_kernels{});
    CHECK(own.arena().size() == size);
    fake::the().most_bytes = size - 1;
    CHECK_THROWS_AS(cuda_executor(x.launches(2), hashing_kernels{}), cuda_error);
    fake::the().most_bytes = ~std::size_t{0};
  }
  CHECK(fake::the().held() == 0);
  fake::reset();
  {
    bytes mine(size);
    cuda_executor run(x.launches(2), hashing_kernels{}, {.arena = cuda_memory(std::span(mine))});
    CHECK(run.arena().data() == mine.data());
    CHECK(fake::calls("cudaMalloc") == 0);
    CHECK_THROWS_AS(
        cuda_executor(x.launches(2), hashing_kernels{}, {.arena = cuda_memory(std::span(mine).first(size - 1))}),
        bad_argument);
  }
  {
    const cuda_stream stream = make_cuda_stream();
    cuda_executor run(x.launches(2), hashing_kernels{}, {.arena = cuda_memory(size, stream.get())});
    cudaMemPool_t pool{};
    REQUIRE(cudaDeviceGetDefaultMemPool(&pool, 0) == cudaSuccess);
    cuda_executor other(x.launches(1), hashing_kernels{}, {.arena = cuda_memory(size, stream.get(), pool)});
    x.bind(run);
    bytes got;
    run.run(stream.get(), 1);
    x.fetch(run, stream.get(), got);
    REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
    CHECK(got == x.expected(1));
    CHECK(fake::calls("cudaMalloc") == 0);
    CHECK(fake::calls("cudaMallocAsync") == 1);
    CHECK(fake::calls("cudaMallocFromPoolAsync") == 1);
  }
  CHECK(fake::calls("cudaFreeAsync") == 2);
  CHECK(fake::the().held() == 0);
}

TEST_CASE("an alignment beyond that of cudaMalloc is kept") {
  training_graph g;
  const tensor_id t = g.add_tensor({.name = "t", .bytes = 100});
  g.add_operation({.name = "make", .outputs = {t}, .seconds = 1});
  g.add_final_output(t);
  const problem p(g, measured_cost{});
  schedule plan;
  plan.compute(op_id{0});
  const std::vector<std::int64_t> at{4096};
  fake::reset();
  cuda_executor run(launch_plan(g, p, plan.steps, {at, 8192, 4096}), hashing_kernels{});
  CHECK(reinterpret_cast<std::uintptr_t>(run.arena().data()) % 4096 == 0);
  CHECK(run.arena().size() == 8192);
}

TEST_CASE("what is not bound is refused before anything is enqueued") {
  const diamond x;
  fake::reset();
  cuda_executor run(x.launches(2), hashing_kernels{});
  CHECK_THROWS_WITH_AS(run.run(nullptr), "tensor 0 (x) is not bound to memory; it has 16 bytes", bad_argument);
  CHECK_THROWS_AS(static_cast<void>(run.capture()), bad_argument);
  CHECK(fake::the().list.empty());
  CHECK(fake::calls("cudaEventRecord") == 0);
}

TEST_CASE("times of the launches are read after the step, of replays too") {
  const diamond x;
  fake::reset();
  const fake::resident data{bytes(16)};
  cuda_executor run(x.launches(2), hashing_kernels{}, {.timing = true});
  run.bind(x.x, data.bytes());
  CHECK_THROWS_AS(static_cast<void>(run.times()), bad_argument);
  run.run(nullptr);
  CHECK_THROWS_AS(static_cast<void>(run.times()), cuda_error);  // it has not ended
  static_cast<void>(cudaGetLastError());
  REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
  const auto check = [&] {
    const std::vector<cuda_launch_time> times = run.times();
    REQUIRE(times.size() == 4);
    for (const cuda_launch_time& t : times) CHECK(t.duration > 0);
    for (const std::size_t i : {1, 2}) {
      CHECK(times[i].start >= times[0].start + times[0].duration);
      CHECK(times[3].start >= times[i].start + times[i].duration);
    }
    return times[0].start;
  };
  check();
  const cuda_captured_step captured = run.capture();
  for (int i = 0; i < 3; ++i) {
    captured.launch(nullptr);
    REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
    check();
  }
  cuda_executor plain(x.launches(2), hashing_kernels{});
  CHECK_THROWS_AS(static_cast<void>(plain.times()), bad_argument);
}

TEST_CASE("debug modes wait for each launch, and poison what belongs to no tensor") {
  training_graph g;
  const tensor_id a = g.add_tensor({.name = "a", .bytes = 8});
  const tensor_id b = g.add_tensor({.name = "b", .bytes = 8});
  const tensor_id c = g.add_tensor({.name = "c", .bytes = 8});
  g.add_operation({.name = "one", .outputs = {a}, .seconds = 1});
  g.add_operation({.name = "two", .inputs = {a}, .outputs = {b}, .seconds = 1, .workspace = 4});
  g.add_operation({.name = "three", .inputs = {b}, .outputs = {c}, .seconds = 1});
  g.add_final_output(c);
  const problem p(g, measured_cost{});
  schedule plan;
  plan.compute(op_id{0});
  plan.compute(op_id{1});
  plan.free(a);
  plan.compute(op_id{2});
  plan.free(b);
  const std::vector<std::int64_t> at{0, 8, 24, 16};
  for (const std::uint32_t streams : {1U, 2U}) {
    fake::reset();
    std::vector<std::byte> seen;
    cuda_executor run(launch_plan(g, p, plan.steps, {at, 32, 8}, streams),
                      [&](const cuda_call& call) {
                        hashing_kernels inner;
                        fake::enqueue(call.stream, [&seen, out = call.outputs[0], space = call.workspace] {
                          seen.insert(seen.end(), out.begin(), out.end());
                          seen.insert(seen.end(), space.begin(), space.end());
                        });
                        inner(call);
                      },
                      {.debug = cuda_debug::poison});
    for (int i = 0; i < 2; ++i) {
      seen.clear();
      run.run(nullptr);
      CHECK(fake::the().first_pending + 1 ==
            fake::the().list.size());  // all but the note of the arena's last use  // it has waited
      CHECK(seen.size() == 28);
      CHECK(std::all_of(seen.begin(), seen.end(), [](std::byte x) { return x == std::byte{detail::cuda::poison}; }));
      const bytes arena = fake::peek(run.arena());
      for (const std::size_t byte : {0, 7, 8, 15, 24, 27}) CHECK(arena[byte] == std::byte{detail::cuda::poison});
      CHECK(std::any_of(arena.begin() + 16, arena.begin() + 24,
                        [](std::byte x) { return x != std::byte{detail::cuda::poison}; }));
    }
    CHECK_THROWS_AS(static_cast<void>(run.capture()), bad_argument);
  }
}

TEST_CASE("ranges name the operations") {
  const diamond x;
  fake::reset();
  const fake::resident data{bytes(16)};
  cuda_executor run(x.launches(2), hashing_kernels{}, {.ranges = true});
  run.bind(x.x, data.bytes());
  run.run(nullptr);
  REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
}

TEST_CASE("owners give back what they own, once") {
  fake::reset();
  {
    cuda_stream a = make_cuda_stream();
    const cudaStream_t raw = a.get();
    cuda_stream b = std::move(a);
    CHECK(!a);
    CHECK(b.get() == raw);
    b = std::move(b);
    CHECK(b.get() == raw);
    b = make_cuda_stream();
    CHECK(fake::calls("cudaStreamDestroy") == 1);
    CHECK(cudaStreamDestroy(b.release()) == cudaSuccess);
    CHECK(!b);
    cuda_stream c = make_cuda_stream();
    c.reset();
    CHECK(!c);
    c.reset();
    CHECK(cudaPeekAtLastError() == cudaSuccess);  // destroyed once
    cuda_memory m(64), n;
    CHECK(m.as<float>().size() == 16);
    n = std::move(m);
    CHECK(m.size() == 0);
    CHECK(n.size() == 64);
    cuda_memory o(std::move(n));
    CHECK(n.size() == 0);
    CHECK(o.size() == 64);
    n = std::move(o);
    n = cuda_memory(32);
    CHECK(fake::calls("cudaFree") == 1);
    CHECK(cuda_memory(std::size_t{0}).data() == nullptr);
  }
  CHECK(fake::the().held() == 0);
}

TEST_CASE("an error says which call, what CUDA says of it, and where; the last error is cleared") {
  fake::reset();
  fake::the().most_bytes = 10;
  try {
    const cuda_memory m(64);
    FAIL("allocated");
  } catch (const cuda_error& e) {
    CHECK(e.code() == cudaErrorMemoryAllocation);
    const std::string text = e.what();
    CHECK(text.find("allocating 64 bytes: out of memory (cudaErrorMemoryAllocation, cuda_stream.cuh:") == 0);
  }
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  throw_on_cuda_error(cudaSuccess);
  CHECK_THROWS_AS(throw_on_cuda_error(cudaErrorUnknown), cuda_error);
}
