// SPDX-License-Identifier: BSL-1.0

// Streams and devices of the caller, captures on them, codes that kernels return, and random operations in captures.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/execute/cuda.cuh"
#include "remat/execute/detail/cuda_streams.cuh"
#include "remat/graph/training_graph.hpp"
#include "support/fake_cuda.hpp"
#include "support/fake_cuda_steps.hpp"

using namespace remat;
using namespace remat::detail;
namespace fake = remat::test::fake_cuda;
using fake::bytes_vector;

namespace {

std::size_t made_streams() {
  return fake::calls("cudaStreamCreateWithFlags") + fake::calls("cudaStreamCreateWithPriority");
}

struct fixture {
  fake::random_step x;
  bytes_vector content = bytes_vector(64, std::byte{7});
  std::optional<fake::resident> input;

  explicit fixture(std::uint64_t seed, std::uint32_t operations = 14) : x(seed, operations) {
    fake::reset(seed);
    input.emplace(content);
  }
  template <class Executor>
  void bind(Executor& e) const {
    x.bind(e, input->bytes());
  }
};

/// The text of the error that `call` throws.
template <class Error, class F>
std::string message(F&& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

/// A step, and the capture of one, fail at operation `operation`. Calls `look` with each error.
template <class Executor, class Look>
void check_failure(Executor& run, cudaStream_t stream, std::uint32_t operation, const Look& look) {
  for (const bool captures : {false, true}) {
    try {
      if (captures)
        static_cast<void>(run.capture());
      else
        run.run(stream);
      FAIL("the error was not seen");
    } catch (const execution_error& e) {
      CHECK(index(e.operation()) == operation);
      look(e);
    }
  }
}

}  // namespace

TEST_CASE("the plan's streams may be the caller's, of any kind; the executor makes none") {
  std::size_t used = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const fixture f(seed, 4 + static_cast<std::uint32_t>(seed % 20));
    const auto k = static_cast<std::uint32_t>(2 + seed % 3);
    const cuda_stream stream = make_cuda_stream();
    std::vector<cuda_stream> own;
    std::vector<cudaStream_t> streams;
    for (std::uint32_t s = 1; s < k; ++s) {
      own.push_back(make_cuda_stream(seed % 2 == 0 ? cudaStreamDefault : cudaStreamNonBlocking, -static_cast<int>(s)));
      streams.push_back(own.back().get());
    }
    std::set<cudaStream_t> seen;
    const std::size_t before = made_streams();
    {
      cuda_executor run(f.x.launches({.streams = k}),
                        [&](const cuda_call& c) {
                          seen.insert(c.stream);
                          fake::hash_kernels{}(c);
                        },
                        {.streams = streams});
      f.bind(run);
      CHECK(run.num_own_streams() == 0);
      bytes_vector got[3];
      run.run(stream.get(), 1);
      f.x.fetch(run, stream.get(), got[0]);
      CHECK(made_streams() == before);
      const cuda_captured_step captured = run.capture_on(stream.get(), 2);
      captured.launch(stream.get());
      f.x.fetch(run, stream.get(), got[1]);
      CHECK(made_streams() == before);
      // The caller's own work on these streams, and a step on one of them.
      for (const cudaStream_t s : streams) fake::enqueue(s, [] {});
      const cuda_event between = make_cuda_event();  // steps on different streams are ordered by the caller
      throw_on_cuda_error(cudaEventRecord(between.get(), stream.get()));
      throw_on_cuda_error(cudaStreamWaitEvent(streams[0], between.get(), 0));
      run.run(streams[0], 3);
      f.x.fetch(run, streams[0], got[2]);
      throw_on_cuda_error(cudaDeviceSynchronize());
      for (std::size_t i = 0; i < 3; ++i) CHECK(got[i] == f.x.expected(1 + i, f.content));
    }
    for (const cudaStream_t s : seen) {
      CHECK((s == stream.get() || std::find(streams.begin(), streams.end(), s) != streams.end()));
      used += s != stream.get();
    }
    for (const cudaStream_t s : streams) CHECK(fake::the().streams.count(s) == 1);  // not destroyed
  }
  CHECK(used > 60);
}

TEST_CASE("streams that do not fit the plan are refused, with the reason") {
  const fixture f(3);
  const cuda_stream a = make_cuda_stream(), b = make_cuda_stream();
  const auto refusal = [&](std::uint32_t k, const std::vector<cudaStream_t>& streams) {
    return message<bad_argument>(
        [&] { cuda_executor(f.x.launches({.streams = k}), fake::hash_kernels{}, {.streams = streams}); });
  };
  CHECK(refusal(2, {a.get(), b.get()}) ==
        "2 streams are given for a plan of 2; it takes 1, as its stream 0 is the one passed to `run`");
  CHECK(refusal(3, {a.get()}) ==
        "1 stream is given for a plan of 3; it takes 2, as its stream 0 is the one passed to `run`");
  CHECK(refusal(3, {a.get(), a.get()}) == "stream 2 of the options is also stream 1");
  for (const cudaStream_t s : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread})
    CHECK(refusal(3, {a.get(), s}) == "stream 2 of the options is a default stream; it must be one that was created");
  CHECK(refusal(3, {a.get(), b.get()}) == "nothing was thrown");
  fake::the().devices = 2;
  throw_on_cuda_error(cudaSetDevice(1));
  const cuda_stream far = make_cuda_stream();
  throw_on_cuda_error(cudaSetDevice(0));
  CHECK(refusal(3, {a.get(), far.get()}) ==
        "stream 2 of the options belongs to device 1; the executor was made on device 0");
  CHECK(fake::the().held() == 3);
}

TEST_CASE("streams that the executor makes have the priority of the options, the capture's among them") {
  const fixture f(3);
  for (const int priority : {0, -2}) {
    std::set<cudaStream_t> seen;
    std::vector<int> priorities;
    cuda_executor run(f.x.launches({.streams = 3}),
                      [&](const cuda_call& c) {
                        if (seen.insert(c.stream).second) {
                          int p = 1;
                          throw_on_cuda_error(cudaStreamGetPriority(c.stream, &p));
                          priorities.push_back(p);
                        }
                        fake::hash_kernels{}(c);
                      },
                      {.priority = priority});
    f.bind(run);
    static_cast<void>(run.capture());
    CHECK(priorities.size() > 1);
    CHECK(priorities == std::vector<int>(priorities.size(), priority));
  }
}

TEST_CASE("replays keep the priority of each stream, whatever stream they are launched into") {
  std::size_t streams = 0;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    const fixture f(seed, 20);
    const cuda_stream origin = make_cuda_stream(cudaStreamNonBlocking, -3), launched = make_cuda_stream();
    const cuda_stream one = make_cuda_stream(cudaStreamNonBlocking, -1), two = make_cuda_stream();
    std::set<int> seen;
    std::vector<std::pair<std::string, int>> asked;
    cuda_executor run(f.x.launches({.streams = 3}),
                      [&](const cuda_call& c) {
                        int p = 1;
                        throw_on_cuda_error(cudaStreamGetPriority(c.stream, &p));
                        asked.emplace_back("operation " + std::to_string(index(c.operation)), p);
                        seen.insert(p);
                        fake::hash_kernels{}(c);
                      },
                      {.streams = {one.get(), two.get()}});
    f.bind(run);
    cuda_captured_step captured = run.capture_on(origin.get(), 1);
    streams += seen.size();
    const auto replayed = [&] {
      std::vector<std::pair<std::string, int>> had;
      const std::size_t first = fake::the().list.size();
      captured.launch(launched.get());
      for (std::size_t i = first; i < fake::the().list.size(); ++i)
        if (const fake::item& it = fake::the().list[i]; it.work && it.work->function)
          had.emplace_back(it.work->name, it.priority);
      throw_on_cuda_error(cudaStreamSynchronize(launched.get()));
      return had;
    };
    CHECK(replayed() == asked);
    asked.clear();
    CHECK(run.update_on(origin.get(), captured, 2));
    CHECK(replayed() == asked);
    // Nodes of an executable graph keep their priority: with another one it is instantiated again.
    asked.clear();
    const cuda_step_update changed = run.update_on(launched.get(), captured, 3);
    CHECK_FALSE(changed);
    CHECK(changed.result == cudaGraphExecUpdateErrorAttributesChanged);
    CHECK(changed.reason() == std::string("the attributes of a node have changed, such as its priority"));
    REQUIRE(changed.node != nullptr);
    CHECK(changed.node->work->type == cudaGraphNodeTypeKernel);
    CHECK(replayed() == asked);
  }
  CHECK(streams > 16);
}

TEST_CASE("another device than the executor's is refused, and both are named") {
  const fixture f(5);
  fake::the().devices = 2;
  const cuda_stream stream = make_cuda_stream();
  throw_on_cuda_error(cudaSetDevice(1));
  const cuda_stream far = make_cuda_stream();
  throw_on_cuda_error(cudaSetDevice(0));
  cuda_executor run(f.x.launches({.streams = 2}), fake::hash_kernels{});
  CHECK(run.device() == 0);
  f.bind(run);
  cuda_captured_step captured = run.capture(1);
  const std::size_t enqueued = fake::the().list.size();

  throw_on_cuda_error(cudaSetDevice(1));
  const std::string wrong = "device 1 is current; the executor was made on device 0: call cudaSetDevice(0) before";
  CHECK(message<bad_argument>([&] { run.run(stream.get()); }) == wrong);
  CHECK(message<bad_argument>([&] { static_cast<void>(run.capture()); }) == wrong);
  CHECK(message<bad_argument>([&] { static_cast<void>(run.capture_on(stream.get())); }) == wrong);
  CHECK(message<bad_argument>([&] { static_cast<void>(run.update(captured)); }) == wrong);
  CHECK(message<bad_argument>([&] { captured.launch(stream.get()); }) == wrong);
  throw_on_cuda_error(cudaSetDevice(0));
  const std::string other = "the stream belongs to device 1; the executor was made on device 0";
  CHECK(message<bad_argument>([&] { run.run(far.get()); }) == other);
  CHECK(message<bad_argument>([&] { static_cast<void>(run.capture_on(far.get())); }) == other);
  CHECK(fake::the().list.size() == enqueued);

  bytes_vector got;
  run.run(stream.get(), 4);
  run.run(stream.get(), 4);
  captured.launch(stream.get());
  f.x.fetch(run, stream.get(), got);
  throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
  CHECK(got == f.x.expected(1, f.content));
  CHECK(message<bad_argument>([&] { run.run(far.get()); }) == other);
}

TEST_CASE("steps run on the default streams; a capture takes the per-thread one, and refuses the legacy one") {
  const fixture f(7);
  cuda_executor run(f.x.launches({.streams = 3}), fake::hash_kernels{});
  f.bind(run);
  const std::string legacy =
      "CUDA cannot capture the legacy default stream; pass a stream that was created, or cudaStreamPerThread";
  for (const cudaStream_t s : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
    bytes_vector got, replayed;
    run.run(s, 1);
    f.x.fetch(run, s, got);
    const cuda_captured_step captured = run.capture(2);
    captured.launch(s);
    f.x.fetch(run, s, replayed);
    throw_on_cuda_error(cudaStreamSynchronize(s));
    CHECK(got == f.x.expected(1, f.content));
    CHECK(replayed == f.x.expected(2, f.content));
    if (s == cudaStreamPerThread) continue;
    CHECK(message<bad_argument>([&] { static_cast<void>(run.capture_on(s)); }) == legacy);
    cuda_captured_step copy = run.capture(2);
    CHECK(message<bad_argument>([&] { static_cast<void>(run.update_on(s, copy)); }) == legacy);
  }
  bytes_vector got;
  const cuda_captured_step captured = run.capture_on(cudaStreamPerThread, 3);
  captured.launch(cudaStreamPerThread);
  f.x.fetch(run, cudaStreamPerThread, got);
  throw_on_cuda_error(cudaStreamSynchronize(cudaStreamPerThread));
  CHECK(got == f.x.expected(3, f.content));
}

TEST_CASE("kernels may allocate in the stream's order and launch graphs of their own, in captures too") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    const fixture f(seed);
    const cuda_stream stream = make_cuda_stream();
    std::size_t parts = 0;
    throw_on_cuda_error(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    fake::enqueue(stream.get(), [&] { ++parts; });
    cudaGraph_t graph{};
    throw_on_cuda_error(cudaStreamEndCapture(stream.get(), &graph));
    const cuda_graph part(graph);
    const cuda_graph_exec exec = make_cuda_graph_exec(part);
    const launch_plan plan = f.x.launches({.streams = static_cast<std::uint32_t>(1 + seed % 3)});
    cuda_executor run(plan, [&](const cuda_call& c) {
      void* p = nullptr;
      throw_on_cuda_error(cudaMallocAsync(&p, 64, c.stream));
      const std::span scratch(static_cast<std::byte*>(p), 64);
      fake::enqueue(
          c.stream, [scratch] { scratch[3] = std::byte{9}; }, {fake::write_of(scratch)}, "scratch");
      throw_on_cuda_error(cudaGraphLaunch(exec.get(), c.stream));
      fake::hash_kernels{}(c);
      throw_on_cuda_error(cudaFreeAsync(p, c.stream));
    });
    f.bind(run);
    cuda_captured_step captured = run.capture(1);
    const auto replayed = [&](std::uint64_t step) {
      bytes_vector got;
      captured.launch(stream.get());
      f.x.fetch(run, stream.get(), got);
      throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
      CHECK(got == f.x.expected(step, f.content));
    };
    for (int i = 0; i < 3; ++i) replayed(1);
    CHECK(parts == 3 * plan.size());
    CHECK_FALSE(run.update(captured, 2));  // such nodes are not updated
    for (int i = 0; i < 2; ++i) replayed(2);
    run.run(stream.get(), 3);
    throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
    CHECK(parts == 6 * plan.size());
  }
}

TEST_CASE("a full launch queue changes nothing but the host's time") {
  std::size_t blocked = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    const fixture f(seed);
    fake::the().queue = 1 + seed % 5;
    const cuda_stream stream = make_cuda_stream();
    cuda_executor run(f.x.launches({.streams = static_cast<std::uint32_t>(1 + seed % 4)}), fake::hash_kernels{});
    f.bind(run);
    bytes_vector got[3];
    for (std::size_t i = 0; i < 2; ++i) {
      run.run(stream.get(), i);
      f.x.fetch(run, stream.get(), got[i]);
    }
    run.capture(2).launch(stream.get());
    f.x.fetch(run, stream.get(), got[2]);
    throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
    for (std::size_t i = 0; i < 3; ++i) CHECK(got[i] == f.x.expected(i, f.content));
    blocked += fake::the().blocked;
  }
  CHECK(blocked > 100);
}

TEST_CASE("a launch that no device can run is named") {
  const fixture f(9);
  const auto k = std::make_shared<fake::kernel>();
  k->name = "nothing";
  k->body = [](void**) {};
  fake::the().kernels[k.get()] = k;
  cuda_executor run(f.x.launches({.streams = 2}), [&](const cuda_call& c) {
    // As <<<…>>>, which drops the code.
    static_cast<void>(cudaLaunchKernel(k.get(), dim3(index(c.operation) == 4 ? 0 : 1), dim3(32), nullptr, 0, c.stream));
  });
  f.bind(run);
  const cuda_stream stream = make_cuda_stream();
  check_failure(run, stream.get(), 4, [](const execution_error&) {});
}

TEST_CASE("a stream that is capturing is not captured again") {
  const fixture f(7);
  cuda_executor run(f.x.launches({.streams = 2}), fake::hash_kernels{});
  f.bind(run);
  const cuda_stream stream = make_cuda_stream();
  throw_on_cuda_error(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
  CHECK(message<bad_argument>([&] { static_cast<void>(run.capture_on(stream.get())); }) ==
        "the stream is capturing already; `run` makes the step a part of that capture");
  CHECK(run.run(stream.get(), 1) == run_status::done);
  cudaGraph_t graph{};
  throw_on_cuda_error(cudaStreamEndCapture(stream.get(), &graph));
  const cuda_graph owned(graph);
}

TEST_CASE("an error that only the kernel's code shows is seen, and named") {
  for (const bool table : {false, true}) {
    CAPTURE(table);
    const fixture f(9);
    cudaError_t code = cudaErrorInvalidConfiguration;
    const auto kernel = [&](const cuda_call& c) {
      if (index(c.operation) == 2 && code != cudaSuccess) return code;  // our runtime has not seen it
      fake::hash_kernels{}(c);
      return cudaSuccess;
    };
    const auto check = [&](auto& run) {
      f.bind(run);
      const cuda_stream stream = make_cuda_stream();
      code = cudaErrorInvalidConfiguration;
      check_failure(run, stream.get(), 2, [](const execution_error& e) {
        try {
          std::rethrow_if_nested(e);
        } catch (const cuda_error& inner) {
          CHECK(inner.code() == cudaErrorInvalidConfiguration);
        }
      });
      code = cudaSuccess;
      bytes_vector got;
      run.run(stream.get(), 6);
      f.x.fetch(run, stream.get(), got);
      throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
      CHECK(got == f.x.expected(6, f.content));
    };
    if (table) {
      cuda_kernel_table kernels(f.x.graph);
      for (std::uint32_t o = 0; o < kernels.size(); ++o) kernels[op_id{o}] = kernel;
      cuda_executor run(f.x.launches({.streams = 2}), kernels);
      check(run);
    } else {
      cuda_executor run(f.x.launches({.streams = 2}), kernel);
      check(run);
    }
  }
}

TEST_CASE("a random operation is captured only with a seed on the device, and replays then differ") {
  training_graph g;
  const tensor_id x = g.add_tensor({.name = "x", .bytes = 16, .kind = tensor_kind::input});
  const tensor_id y = g.add_tensor({.name = "y", .bytes = 16}), z = g.add_tensor({.name = "z", .bytes = 16});
  g.add_operation({.name = "dropout", .inputs = {x}, .outputs = {y}, .seconds = 1, .deterministic = false});
  g.add_operation({.name = "sum", .inputs = {y}, .outputs = {z}, .seconds = 1});
  g.add_final_output(z);
  const problem p(g, measured_cost{});
  fake::reset();
  const fake::resident input(bytes_vector(16, std::byte{7}));
  const cuda_stream stream = make_cuda_stream();
  const std::string refusal =
      "operation 0 (dropout) is random, and every replay would repeat the seed of the capture; set cuda_options::seed "
      "to a cuda_seed, which the kernel reads";
  {
    cuda_executor run(launch_plan(g, p, listed_order(p)), fake::hash_kernels{});
    CHECK(run.plan().is_random(op_id{0}));
    CHECK_FALSE(run.plan().is_random(op_id{1}));
    run.bind(x, input.bytes());
    CHECK(run.run(stream.get(), 1) == run_status::done);  // eager steps have the seeds of their calls
    CHECK(message<bad_argument>([&] { static_cast<void>(run.capture()); }) == refusal);
    CHECK(message<bad_argument>([&] { static_cast<void>(run.capture_on(stream.get())); }) == refusal);
    throw_on_cuda_error(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    CHECK(message<bad_argument>([&] { run.run(stream.get(), 1); }) == refusal);
    cudaGraph_t graph{};
    throw_on_cuda_error(cudaStreamEndCapture(stream.get(), &graph));
    const cuda_graph owned(graph);
  }
  const cuda_seed seed;
  cuda_executor run(launch_plan(g, p, listed_order(p)), fake::hash_kernels{&seed}, {.seed = &seed});
  run.bind(x, input.bytes());
  const cuda_captured_step captured = run.capture();
  std::set<bytes_vector> masks;
  for (std::uint64_t i = 0; i < 20; ++i) {
    captured.launch(stream.get(), i % 10);
    throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
    masks.insert(fake::peek(run.output(z)));
  }
  CHECK(masks.size() == 10);
}

TEST_CASE("an executor is destroyed while its work is in flight") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const fixture f(seed);
    const cuda_stream stream = make_cuda_stream();
    const fake::output_memory to(f.x, std::byte{1});
    {
      cuda_executor run(f.x.launches({.streams = 3, .bound_outputs = f.x.outputs()}), fake::hash_kernels{});
      f.bind(run);
      to.bind(run);
      run.run(stream.get(), 1);
      run.capture(2).launch(stream.get());
      CHECK(fake::calls("cudaStreamSynchronize") == 0);
    }
    throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
    CHECK(to.content() == f.x.expected(2, f.content));
    CHECK(fake::the().reports.empty());
  }
}

TEST_CASE("an executor whose failed run could not be waited for waits when it is destroyed") {
  const fixture f(5);
  const cuda_stream stream = make_cuda_stream();
  std::size_t waits = 0;
  {
    cuda_executor run(f.x.launches({.streams = 2}), [&](const cuda_call& c) {
      fake::hash_kernels{}(c);
      if (index(c.operation) == f.x.graph.num_operations() / 2) {
        fake::the().fail_at = fake::the().counted;  // the wait that follows the throw
        throw std::runtime_error("no such algorithm");
      }
    });
    f.bind(run);
    CHECK_THROWS_AS(run.run(stream.get()), execution_error);
    REQUIRE(fake::the().failed == "cudaStreamSynchronize");
    waits = fake::calls("cudaStreamSynchronize");
  }
  CHECK(fake::calls("cudaStreamSynchronize") == waits + 1);
}
