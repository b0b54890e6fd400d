// SPDX-License-Identifier: BSL-1.0

// Captured steps as child graphs of the caller's graphs and captures.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/execute/cuda.cuh"
#include "remat/execute/detail/cuda_streams.cuh"
#include "support/fake_cuda.hpp"
#include "support/fake_cuda_steps.hpp"

using namespace remat;
namespace fake = remat::test::fake_cuda;
using fake::bytes_vector;

namespace {

/// A random step, and the memory of its parameters and inputs.
struct fixture {
  fake::random_step x;
  bytes_vector content = bytes_vector(64, std::byte{7}), other = bytes_vector(64, std::byte{9});
  std::optional<fake::resident> input, second;

  explicit fixture(std::uint64_t seed, std::uint32_t operations = 14) : x(seed, operations) {
    fake::reset(seed);
    input.emplace(content);
    second.emplace(other);
  }
  /// The bytes of the plan's arena.
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(x.where.arena_bytes); }
};

/// What `work` gives to a stream, as a graph.
template <class F>
cuda_graph captured(F&& work) {
  const cuda_stream s = make_cuda_stream();
  throw_on_cuda_error(cudaStreamBeginCapture(s.get(), cudaStreamCaptureModeThreadLocal));
  work(s.get());
  cudaGraph_t g{};
  throw_on_cuda_error(cudaStreamEndCapture(s.get(), &g));
  return cuda_graph(g);
}
cuda_graph empty_graph() {
  cudaGraph_t g{};
  throw_on_cuda_error(cudaGraphCreate(&g, 0));
  return cuda_graph(g);
}
/// Adds other work of the caller to `to`, behind `after`.
cudaGraphNode_t add(cudaGraph_t to, const std::vector<cudaGraphNode_t>& after, const cuda_graph& work) {
  cudaGraphNode_t n{};
  throw_on_cuda_error(cudaGraphAddChildGraphNode(&n, to, after.data(), after.size(), work.get()));
  return n;
}
void launch_and_wait(const cuda_graph_exec& exec, cudaStream_t s) {
  throw_on_cuda_error(cudaGraphLaunch(exec.get(), s));
  throw_on_cuda_error(cudaStreamSynchronize(s));
}
/// The first report that `work` causes; "" if there is none. Work ends before it returns.
template <class F>
std::string report_of(F&& work) {
  fake::the().expects_reports = true;
  work();
  static_cast<void>(cudaDeviceSynchronize());
  fake::the().expects_reports = false;
  const std::string first = fake::the().reports.empty() ? "" : fake::the().reports.front();
  fake::the().reports.clear();
  return first;
}
bool has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("steps are parts of the caller's graph, in the order of its edges; it outlives the captured steps") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const fixture f(seed, 4 + static_cast<std::uint32_t>(seed % 20));
    const fake::resident changing(bytes_vector(64, std::byte{1}));
    const cuda_stream stream = make_cuda_stream();
    cuda_executor run(f.x.launches({.streams = static_cast<std::uint32_t>(1 + seed % 4)}), fake::hash_kernels{});
    f.x.bind(run, changing.bytes());
    bytes_vector got[2];
    const cuda_graph graph = empty_graph();
    {
      const cuda_graph load = captured([&](cudaStream_t s) {
        throw_on_cuda_error(
            cudaMemcpyAsync(changing.bytes().data(), f.input->bytes().data(), 64, cudaMemcpyDeviceToDevice, s));
      });
      std::vector<cudaGraphNode_t> last{add(graph.get(), {}, load)};
      for (std::size_t i = 0; i < 2; ++i) {
        const cuda_captured_step step = run.capture(5 + i);
        last = {step.add_to(graph.get(), last)};
        last = {add(graph.get(), last, captured([&](cudaStream_t s) { f.x.fetch(run, s, got[i]); }))};
      }
    }
    const cuda_graph_exec exec = make_cuda_graph_exec(graph);
    for (int i = 0; i < 3; ++i) {
      got[0].clear(), got[1].clear();
      launch_and_wait(exec, stream.get());
      CHECK(got[0] == f.x.expected(5, f.content));
      CHECK(got[1] == f.x.expected(6, f.content));
    }
    CHECK(fake::calls("cudaGraphAddChildGraphNode") == 5);
  }
}

TEST_CASE("a step that is launched into a capture becomes one node of it, between the caller's work") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const fixture f(seed, 4 + static_cast<std::uint32_t>(seed % 20));
    const fake::resident changing(bytes_vector(64, std::byte{1}));
    const cuda_stream stream = make_cuda_stream();
    cuda_executor run(f.x.launches({.streams = static_cast<std::uint32_t>(1 + seed % 4)}), fake::hash_kernels{});
    f.x.bind(run, changing.bytes());
    bytes_vector got[2];
    const cuda_captured_step step = run.capture(5);
    const std::size_t done = fake::the().list.size();
    const cuda_graph graph = captured([&](cudaStream_t s) {
      throw_on_cuda_error(
          cudaMemcpyAsync(changing.bytes().data(), f.input->bytes().data(), 64, cudaMemcpyDeviceToDevice, s));
      for (bytes_vector& to : got) {
        step.launch(s, 99);  // a seed that no replay could repeat is not kept
        f.x.fetch(run, s, to);
      }
    });
    CHECK(graph.get()->nodes.size() == 5);
    CHECK(fake::the().list.size() == done);  // nothing was enqueued
    const cuda_graph_exec exec = make_cuda_graph_exec(graph);
    for (int i = 0; i < 3; ++i) {
      got[0].clear(), got[1].clear();
      launch_and_wait(exec, stream.get());
      for (const bytes_vector& g : got) CHECK(g == f.x.expected(5, f.content));
    }
    bytes_vector after;
    step.launch(stream.get());  // outside of a capture it runs as before
    f.x.fetch(run, stream.get(), after);
    throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
    CHECK(after == got[0]);
  }
}

TEST_CASE(
    "a step in a capture follows the begin of a kernel's blocks if that was asked for, and programmatic events' ends") {
  const fixture f(7);
  const cuda_stream stream = make_cuda_stream();
  cuda_executor run(f.x.launches({.streams = 2}), fake::hash_kernels{});
  f.x.bind(run, f.input->bytes());
  const cuda_captured_step step = run.capture(1);
  for (const int port : {cudaGraphKernelNodePortLaunchCompletion, cudaGraphKernelNodePortProgrammatic}) {
    CAPTURE(port);
    const bool programmatic = port == cudaGraphKernelNodePortProgrammatic;
    const cuda_graph graph = captured([&](cudaStream_t s) {
      fake::enqueue(
          s, [] {}, {}, "before");
      // As an event of the launch itself leaves it (cudaLaunchAttributeLaunchCompletionEvent, …ProgrammaticEvent).
      cudaStreamCaptureStatus status{};
      const cudaGraphNode_t* after = nullptr;
      std::size_t count = 0;
      throw_on_cuda_error(cudaStreamGetCaptureInfo(s, &status, nullptr, nullptr, &after, nullptr, &count));
      REQUIRE(count == 1);
      cudaGraphNode_t last = *after;
      cudaGraphEdgeData data{};
      data.from_port = static_cast<unsigned char>(port);
      data.type = programmatic ? cudaGraphDependencyTypeProgrammatic : cudaGraphDependencyTypeDefault;
      throw_on_cuda_error(cudaStreamUpdateCaptureDependencies(s, &last, &data, 1, cudaStreamSetCaptureDependencies));
      step.launch(s);
    });
    REQUIRE(graph.get()->nodes.size() == 2);
    const CUgraphNode_st& child = *graph.get()->nodes[1];
    CHECK(child.work->type == cudaGraphNodeTypeGraph);
    CHECK(child.after == std::vector<std::size_t>{0});
    CHECK(child.edges.size() == (programmatic ? 0 : 1));
    if (!programmatic) CHECK(child.edges.at(0).from_port == port);
    launch_and_wait(make_cuda_graph_exec(graph), stream.get());
  }
}

TEST_CASE("steps without an edge between them race for the arena, and are reported") {
  const fixture f(7);
  cuda_executor run(f.x.launches({.streams = 2}), fake::hash_kernels{});
  f.x.bind(run, f.input->bytes());
  const cuda_captured_step step = run.capture(1);
  const cuda_stream stream = make_cuda_stream();
  for (const bool ordered : {true, false}) {
    const cuda_graph graph = empty_graph();
    const cudaGraphNode_t first = step.add_to(graph.get());
    if (ordered)
      step.add_to(graph.get(), std::span(&first, 1));
    else
      step.add_to(graph.get());
    const cuda_graph_exec exec = make_cuda_graph_exec(graph);
    const std::string report = report_of([&] { throw_on_cuda_error(cudaGraphLaunch(exec.get(), stream.get())); });
    if (ordered)
      CHECK(report == "");
    else
      CHECK(has(report, "race"));
  }
}

TEST_CASE("a part is a copy: an update reaches it by the runtime's function, or by an update of the whole graph") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const fixture f(seed);
    cuda_executor run(f.x.launches({.streams = static_cast<std::uint32_t>(1 + seed % 3)}), fake::hash_kernels{});
    f.x.bind(run, f.input->bytes());
    cuda_captured_step step = run.capture(1);
    const cuda_stream stream = make_cuda_stream();
    bytes_vector got;
    const auto whole = [&] {
      return captured([&](cudaStream_t s) {
        step.launch(s);
        f.x.fetch(run, s, got);
      });
    };
    const cuda_graph by_capture = whole(), by_hand = empty_graph();
    const cudaGraphNode_t node = step.add_to(by_hand.get());
    add(by_hand.get(), {node}, captured([&](cudaStream_t s) { f.x.fetch(run, s, got); }));
    const cuda_graph_exec first = make_cuda_graph_exec(by_capture), second = make_cuda_graph_exec(by_hand);
    const auto result = [&](const cuda_graph_exec& exec) {
      got.clear();
      launch_and_wait(exec, stream.get());
      return got;
    };
    f.x.bind(run, f.second->bytes());
    REQUIRE(run.update(step, 2));
    for (const cuda_graph_exec* e : {&first, &second}) CHECK(result(*e) == f.x.expected(1, f.content));
    REQUIRE(cudaGraphExecChildGraphNodeSetParams(second.get(), node, step.graph()) == cudaSuccess);
    CHECK(result(second) == f.x.expected(2, f.other));
    cudaGraphExecUpdateResultInfo info{};
    const cuda_graph again = whole();
    REQUIRE(cudaGraphExecUpdate(first.get(), again.get(), &info) == cudaSuccess);
    CHECK(result(first) == f.x.expected(2, f.other));
  }
}

TEST_CASE("the caller writes the seed before each launch of its graph") {
  const fixture f(29, 18);
  const cuda_seed seed;
  cuda_executor run(f.x.launches({.streams = 3}), fake::hash_kernels{&seed}, {.seed = &seed});
  f.x.bind(run, f.input->bytes());
  const cuda_captured_step step = run.capture();
  const cuda_stream stream = make_cuda_stream();
  bytes_vector got;
  const cuda_graph graph = captured([&](cudaStream_t s) {
    step.launch(s);
    f.x.fetch(run, s, got);
  });
  CHECK(graph.get()->nodes.size() == 2);  // no write of the seed, which every replay would repeat
  const cuda_graph_exec exec = make_cuda_graph_exec(graph);
  for (const std::uint64_t i : {3, 1, 4, 1}) {
    seed.set(i, stream.get());
    launch_and_wait(exec, stream.get());
    CHECK(got == f.x.expected(i, f.content));
  }
}

TEST_CASE("parts keep the priorities of their streams, and their launches are timed") {
  const fixture f(7, 20);
  const cuda_stream stream = make_cuda_stream();
  cuda_executor run(f.x.launches({.streams = 2}), fake::hash_kernels{}, {.priority = -2, .timing = true});
  f.x.bind(run, f.input->bytes());
  const cuda_graph graph = empty_graph();
  run.capture(1).add_to(graph.get());
  const cuda_graph_exec exec = make_cuda_graph_exec(graph);
  for (int i = 0; i < 2; ++i) {
    const std::size_t first = fake::the().list.size();
    throw_on_cuda_error(cudaGraphLaunch(exec.get(), stream.get()));
    std::size_t kernels = 0;
    for (std::size_t j = first; j < fake::the().list.size(); ++j) {
      const fake::item& it = fake::the().list[j];
      if (!it.work || it.work->type != cudaGraphNodeTypeKernel) continue;
      ++kernels;
      CHECK(it.priority == -2);
    }
    CHECK(kernels == run.plan().size());
    throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
    for (const cuda_launch_time& t : run.times()) CHECK(t.duration > 0);
  }
}

namespace {

enum class arena_of { executor, pool, caller };
enum class part { by_node, by_launch, by_run };

/// Destroys an executor while launches of the caller's graph are in flight. Returns the first report, and checks how
/// often the host has waited for the device.
std::string destroyed_in_flight(std::uint64_t seed, arena_of arena, part how) {
  const fixture f(seed);
  const cuda_stream home = make_cuda_stream(), stream = make_cuda_stream();
  const cuda_memory mine(f.size());
  return report_of([&] {
    cuda_graph graph;
    cuda_graph_exec exec;
    {
      cuda_options options;
      if (arena == arena_of::pool) options.arena = cuda_memory(f.size(), home.get());
      if (arena == arena_of::caller) options.arena = cuda_memory(mine.bytes());
      cuda_executor run(f.x.launches({.streams = 2}), fake::hash_kernels{}, std::move(options));
      f.x.bind(run, f.input->bytes());
      if (how == part::by_node) {
        graph = empty_graph();
        run.capture(1).add_to(graph.get());
      } else {
        graph = captured([&](cudaStream_t s) {
          if (how == part::by_run)
            run.run(s, 1);
          else
            run.capture(1).launch(s);
        });
      }
      exec = make_cuda_graph_exec(graph);
      const cuda_event allocated = make_cuda_event();
      throw_on_cuda_error(cudaEventRecord(allocated.get(), home.get()));
      throw_on_cuda_error(cudaStreamWaitEvent(stream.get(), allocated.get(), 0));
      for (int i = 0; i < 2; ++i) throw_on_cuda_error(cudaGraphLaunch(exec.get(), stream.get()));
      CHECK(fake::calls("cudaDeviceSynchronize") == 0);
    }
    CHECK(fake::calls("cudaDeviceSynchronize") == (arena == arena_of::caller ? 0 : 1));
  });
}

}  // namespace

TEST_CASE("an executor is destroyed while launches of the caller's graph are in flight, and its arena is freed after") {
  for (const arena_of arena : {arena_of::executor, arena_of::pool, arena_of::caller})
    for (const part how : {part::by_node, part::by_launch, part::by_run})
      for (std::uint64_t seed = 11; seed < 14; ++seed) {
        CAPTURE(static_cast<int>(arena));
        CAPTURE(static_cast<int>(how));
        CHECK(destroyed_in_flight(seed, arena, how) == "");
      }
}

TEST_CASE("the destructor waits for the executor's device, whichever is current") {
  const fixture f(11);
  fake::the().devices = 2;
  const cuda_stream stream = make_cuda_stream();
  const cuda_graph graph = empty_graph();
  const std::string report = report_of([&] {
    cuda_graph_exec exec;
    {
      cuda_executor run(f.x.launches({.streams = 2}), fake::hash_kernels{});
      f.x.bind(run, f.input->bytes());
      run.capture(1).add_to(graph.get());
      exec = make_cuda_graph_exec(graph);
      throw_on_cuda_error(cudaGraphLaunch(exec.get(), stream.get()));
      throw_on_cuda_error(cudaSetDevice(1));
    }
    int device = 0;
    throw_on_cuda_error(cudaGetDevice(&device));
    CHECK(device == 1);
    throw_on_cuda_error(cudaSetDevice(0));
  });
  CHECK(report == "");
  CHECK(fake::the().memory.size() == fake::the().lent);
}

TEST_CASE("an arena whose work cannot be waited for is not freed") {
  const fixture f(11);
  const cuda_stream stream = make_cuda_stream(), other = make_cuda_stream();
  const cuda_graph graph = empty_graph();
  std::byte* arena = nullptr;
  const std::string report = report_of([&] {
    cuda_graph_exec exec;
    throw_on_cuda_error(cudaStreamBeginCapture(other.get(), cudaStreamCaptureModeRelaxed));
    {
      cuda_executor run(f.x.launches({.streams = 2}), fake::hash_kernels{});
      f.x.bind(run, f.input->bytes());
      arena = run.arena().data();
      run.capture(1).add_to(graph.get());
      exec = make_cuda_graph_exec(graph);
      throw_on_cuda_error(cudaGraphLaunch(exec.get(), stream.get()));
    }  // a wait for the device is forbidden during any capture
    CHECK(fake::calls("cudaDeviceSynchronize") == 1);
    CHECK(fake::the().memory.count(arena) == 1);
    cudaGraph_t g{};
    static_cast<void>(cudaStreamEndCapture(other.get(), &g));
    static_cast<void>(cudaGetLastError());
    throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
  });
  CHECK(report == "");
  throw_on_cuda_error(cudaFree(arena));
}

TEST_CASE("a launch of the caller's graph that comes too late or too early for the arena is reported") {
  const fixture f(11);
  const cuda_stream home = make_cuda_stream(), stream = make_cuda_stream();
  const cuda_graph graph = empty_graph();
  cuda_graph_exec exec;
  const std::string early = report_of([&] {
    // Kernels that touch nothing: the pages will be gone.
    cuda_executor run(f.x.launches({.streams = 2}),
                      [](const cuda_call& c) {
                        fake::enqueue(
                            c.stream, [] {}, {fake::write_of(c.outputs[0])}, "write");
                      },
                      {.arena = cuda_memory(f.size(), home.get())});
    f.x.bind(run, f.input->bytes());
    run.capture(1).add_to(graph.get());
    exec = make_cuda_graph_exec(graph);
    throw_on_cuda_error(cudaGraphLaunch(exec.get(), stream.get()));
  });
  CHECK(has(early, "not ordered after its allocation"));
  const std::string late = report_of([&] { throw_on_cuda_error(cudaGraphLaunch(exec.get(), stream.get())); });
  CHECK(has(late, "not any more"));
}

TEST_CASE("a part is refused with another current device, in a capture that has failed, and with memory of its own") {
  const fixture f(7);
  const cuda_stream stream = make_cuda_stream();
  bool allocates = false;
  cuda_executor run(f.x.launches({.streams = 2}), [&](const cuda_call& c) {
    void* p = nullptr;
    if (allocates) throw_on_cuda_error(cudaMallocAsync(&p, 64, c.stream));
    fake::hash_kernels{}(c);
    if (allocates) throw_on_cuda_error(cudaFreeAsync(p, c.stream));
  });
  f.x.bind(run, f.input->bytes());
  const cuda_captured_step step = run.capture(1);
  const cuda_graph graph = empty_graph();
  SUBCASE("another device") {
    fake::the().devices = 2;
    throw_on_cuda_error(cudaSetDevice(1));
    CHECK_THROWS_AS(step.add_to(graph.get()), bad_argument);
    throw_on_cuda_error(cudaSetDevice(0));
  }
  SUBCASE("a node of another graph") {
    const cuda_graph second = empty_graph();
    const cudaGraphNode_t node = step.add_to(second.get());
    CHECK_THROWS_AS(step.add_to(graph.get(), std::span(&node, 1)), cuda_error);
  }
  SUBCASE("a capture that has failed") {
    throw_on_cuda_error(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    CHECK(cudaStreamSynchronize(stream.get()) == cudaErrorStreamCaptureUnsupported);
    static_cast<void>(cudaGetLastError());
    try {
      step.launch(stream.get());
      FAIL("the step was added");
    } catch (const cuda_error& e) {
      CHECK(e.code() == cudaErrorStreamCaptureInvalidated);
    }
    cudaGraph_t g{};
    CHECK(cudaStreamEndCapture(stream.get(), &g) == cudaErrorStreamCaptureInvalidated);
  }
  SUBCASE("memory of its own") {
    allocates = true;
    const cuda_captured_step own = run.capture(1);
    CHECK_THROWS_AS(own.add_to(graph.get()), cuda_error);
    const cuda_graph capture = captured([&](cudaStream_t s) {
      CHECK_THROWS_AS(own.launch(s), cuda_error);
      run.run(s, 1);  // the kernels' memory becomes the caller's graph's
    });
    const cuda_graph_exec exec = make_cuda_graph_exec(capture);
    launch_and_wait(exec, stream.get());
  }
  static_cast<void>(cudaGetLastError());
  CHECK(graph.get()->nodes.empty());
}

TEST_CASE("a fault while a step is added is an error, and leaves the capture and the step as they were") {
  const fixture f(7);
  const cuda_stream stream = make_cuda_stream();
  cuda_executor run(f.x.launches({.streams = 2}), fake::hash_kernels{});
  f.x.bind(run, f.input->bytes());
  const cuda_captured_step step = run.capture(1);
  bytes_vector got;
  for (const char* name : {"cudaGetDevice", "cudaStreamIsCapturing", "cudaStreamGetCaptureInfo",
                           "cudaGraphAddChildGraphNode", "cudaStreamUpdateCaptureDependencies"}) {
    CAPTURE(name);
    const cuda_graph graph = captured([&](cudaStream_t s) {
      fake::the().always_fails = name;
      CHECK_THROWS_AS(step.launch(s), cuda_error);
      fake::the().always_fails = "";
      CHECK(cudaPeekAtLastError() == cudaSuccess);
      // A child graph that was added without its order cannot be taken back: begin the capture anew.
      if (name == std::string("cudaStreamUpdateCaptureDependencies")) return;
      step.launch(s);
      f.x.fetch(run, s, got);
    });
    if (name == std::string("cudaStreamUpdateCaptureDependencies")) continue;
    const cuda_graph_exec exec = make_cuda_graph_exec(graph);
    got.clear();
    launch_and_wait(exec, stream.get());
    CHECK(got == f.x.expected(1, f.content));
  }
}
