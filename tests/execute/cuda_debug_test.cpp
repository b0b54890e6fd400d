// SPDX-License-Identifier: BSL-1.0

// The tools of the debug modes: NVTX memory regions, and the check for stray writes. And settings of the executor that
// do not show in the results: kinds of streams and events, modes of captures.
#include "remat/execute/detail/cuda_debug.cuh"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "remat/execute/cuda.cuh"
#include "remat/graph/training_graph.hpp"
#include "support/fake_cuda.hpp"
#include "support/fake_cuda_steps.hpp"

using namespace remat;
namespace fake = remat::test::fake_cuda;
using fake::bytes_vector;

namespace {

std::vector<std::string> pushed;  // the NVTX ranges that a tool would see

int NVTX_API push(const char* name) {
  pushed.emplace_back(name);
  return 0;
}
/// Attaches this program as an NVTX tool.
int NVTX_API attach(NvtxGetExportTableFunc_t table_of) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned int size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) == 0) return 0;
  *table[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(&push);
  return 1;
}

// NVTX looks there before it looks for a tool's library.
const bool attached = (InitializeInjectionNvtx2_fnptr = &attach, true);

/// Notes what a tool would be told.
struct noted_memory {
  static inline std::size_t heaps = 0, opened = 0;
  static inline std::map<const std::byte*, std::size_t> regions{};
  static inline std::vector<std::string> mistakes{};

  static nvtxMemHeapHandle_t register_heap(std::span<const std::byte>) {
    ++heaps;
    return nullptr;
  }
  static void unregister_heap(nvtxMemHeapHandle_t) { --heaps; }
  static void register_region(nvtxMemHeapHandle_t, std::span<const std::byte> m) {
    if (heaps == 0) mistakes.push_back("no heap");
    for (const auto& [at, bytes] : regions)
      if (m.data() < at + bytes && at < m.data() + m.size()) mistakes.push_back("regions share bytes");
    regions[m.data()] = m.size();
    ++opened;
  }
  static void unregister_region(std::span<const std::byte> m) {
    const auto at = regions.find(m.data());
    if (at == regions.end() || at->second != m.size())
      mistakes.push_back("no such region");
    else
      regions.erase(at);
  }
  static bool covers(std::span<const std::byte> m) {
    if (m.empty()) return true;
    const auto at = regions.find(m.data());
    return at != regions.end() && at->second == m.size();
  }
};

/// a, b and c of 8 bytes each; a lies before b, a gap of 8 bytes and c behind.
struct line {
  training_graph graph;
  tensor_id a, b, c;
  line() {
    a = graph.add_tensor({.name = "a", .bytes = 8});
    b = graph.add_tensor({.name = "b", .bytes = 8});
    c = graph.add_tensor({.name = "c", .bytes = 8});
    graph.add_operation({.name = "one", .outputs = {a}, .seconds = 1});
    graph.add_operation({.name = "two", .inputs = {a}, .outputs = {b}, .seconds = 1, .workspace = 4});
    graph.add_operation({.name = "three", .inputs = {b}, .outputs = {c}, .seconds = 1});
    graph.add_final_output(c);
  }
  [[nodiscard]] launch_plan launches() const {
    const problem p(graph, measured_cost{});
    schedule plan;
    plan.compute(op_id{0});
    plan.compute(op_id{1});
    plan.free(a);
    plan.compute(op_id{2});
    plan.free(b);
    const std::vector<std::int64_t> at{0, 8, 32, 24};
    return launch_plan(graph, p, plan.steps, {at, 40, 8});
  }
};

/// Runs the launches of a plan one by one, as the debug modes do, under the check. `extra`: after operation `bad`, one
/// more byte is written there. Returns the error of the check, or nothing.
std::string checked_step(const launch_plan& plan, const cuda_memory& arena, detail::cuda::write_check& check,
                         std::size_t bad, std::size_t extra) {
  const cuda_stream stream = make_cuda_stream();
  const auto fill = [&](const detail::cuda::arena_range& r, int value) {
    if (r.bytes != 0) throw_on_cuda_error(cudaMemsetAsync(arena.data() + r.offset, value, r.bytes, stream.get()));
  };
  check.restart(stream.get());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const launch& l = plan.launches()[i];
    const detail::cuda::arena_range space = detail::cuda::range_of(plan, plan.lives().workspace[l.step]);
    for (const std::uint32_t a : plan.begins(i)) fill(detail::cuda::range_of(plan, a), detail::cuda::poison);
    fill(space, detail::cuda::poison);
    check.before(i, stream.get());
    for (const launch_argument& x : plan.outputs(l))
      if (x.allocation != launch_argument::bound)
        fill(detail::cuda::range_of(plan, x.allocation), static_cast<int>(i) + 1);
    fill(space, 0x55);
    if (i == bad) fill({extra, 1}, 0x80 + static_cast<int>(i));
    try {
      check.after(i, stream.get());
    } catch (const cuda_error&) {
      throw;
    } catch (const error& e) {
      throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
      return e.what();
    }
    for (const std::uint32_t a : plan.frees(i)) fill(detail::cuda::range_of(plan, a), detail::cuda::poison);
    fill(space, detail::cuda::poison);
  }
  throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
  return "";
}

}  // namespace

TEST_CASE("the regions are those of the tensors that live and of the workspace, at every launch") {
  std::size_t opened = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    fake::reset(seed);
    const fake::random_step x(seed, 4 + static_cast<std::uint32_t>(seed % 20));
    const launch_plan plan = x.launches({.streams = 2});
    std::vector<std::byte> arena(static_cast<std::size_t>(plan.arena_bytes()));
    noted_memory::mistakes.clear();
    noted_memory::opened = 0;
    {
      detail::cuda::memory_regions<noted_memory> regions(plan, arena);
      for (int step = 0; step < 2; ++step) {
        regions.restart();
        CHECK(noted_memory::regions.empty());
        for (std::size_t i = 0; i < plan.size(); ++i) {
          regions.before(i);
          const launch& l = plan.launches()[i];
          const auto part = [&](std::int64_t at, std::int64_t bytes) {
            return std::span<const std::byte>(arena).subspan(static_cast<std::size_t>(at),
                                                             static_cast<std::size_t>(bytes));
          };
          for (std::uint32_t a = l.first_input; a < l.end; ++a) {
            const launch_argument& y = plan.arguments()[a];
            if (y.allocation != launch_argument::bound) CHECK(noted_memory::covers(part(y.offset, y.bytes)));
          }
          CHECK(noted_memory::covers(part(l.workspace_offset, l.workspace_bytes)));
          const std::size_t at_launch = noted_memory::regions.size();
          regions.after(i);
          std::size_t ended = l.workspace_bytes != 0 ? 1 : 0;
          for (const std::uint32_t a : plan.frees(i)) ended += detail::cuda::range_of(plan, a).bytes != 0;
          CHECK(noted_memory::regions.size() + ended == at_launch);
        }
      }
    }
    CHECK(noted_memory::regions.empty());
    CHECK(noted_memory::heaps == 0);
    CHECK(noted_memory::mistakes.empty());
    opened += noted_memory::opened;
  }
  CHECK(opened > 500);
}

TEST_CASE("without a tool, the regions cost calls that do nothing") {
  const line x;
  const launch_plan plan = x.launches();
  std::vector<std::byte> arena(40);
  detail::cuda::memory_regions<> regions(plan, arena);
  regions.restart();
  for (std::size_t i = 0; i < plan.size(); ++i) {
    regions.before(i);
    regions.after(i);
  }
}

TEST_CASE("a step that writes its outputs and workspace passes the check") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    fake::reset(seed);
    const fake::random_step x(seed, 4 + static_cast<std::uint32_t>(seed % 20));
    const launch_plan plan = x.launches({});
    const cuda_memory arena(static_cast<std::size_t>(plan.arena_bytes()));
    detail::cuda::write_check check(plan, arena.bytes());
    for (int step = 0; step < 2; ++step) CHECK(checked_step(plan, arena, check, plan.size(), 0) == "");
  }
}

TEST_CASE("a write outside of a launch's outputs is named, in free memory, in a neighbour and in an input") {
  fake::reset();
  const line x;
  const launch_plan plan = x.launches();
  const cuda_memory arena(40);
  detail::cuda::write_check check(plan, arena.bytes());
  const std::string begin = "a kernel has written to byte ";
  const std::string middle = " of the arena, which is neither its output nor its workspace; ";
  CHECK(checked_step(plan, arena, check, 0, 10) ==
        begin + "10" + middle + "3 bytes behind the end of output tensor 0 (a)");
  CHECK(checked_step(plan, arena, check, 1, 7) == begin + "7" + middle + "it belongs to input tensor 0 (a)");
  CHECK(checked_step(plan, arena, check, 1, 37) == begin + "37" + middle + "2 bytes behind the end of the workspace");
  CHECK(checked_step(plan, arena, check, 2, 21) == begin + "21" + middle + "3 bytes before output tensor 2 (c)");
  CHECK(checked_step(plan, arena, check, 2, 0) == begin + "0" + middle + "8 bytes before input tensor 1 (b)");
  // Its own outputs and workspace may be written.
  CHECK(checked_step(plan, arena, check, 1, 8) == "");
  CHECK(checked_step(plan, arena, check, 1, 35) == "");
}

TEST_CASE("every stray byte of random steps is found") {
  std::size_t found = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    fake::reset(seed);
    const fake::random_step x(seed, 8);
    const launch_plan plan = x.launches({});
    const cuda_memory arena(static_cast<std::size_t>(plan.arena_bytes()));
    detail::cuda::write_check check(plan, arena.bytes());
    for (std::size_t i = 0; i < plan.size(); ++i)
      for (std::size_t at = seed % 3; at < arena.size(); at += 3) {
        bool own = false;
        const launch& l = plan.launches()[i];
        const auto look = [&](std::int64_t first, std::int64_t bytes) {
          own = own || (at >= static_cast<std::size_t>(first) && at < static_cast<std::size_t>(first + bytes));
        };
        for (const launch_argument& y : plan.outputs(l))
          if (y.allocation != launch_argument::bound) look(y.offset, y.bytes);
        look(l.workspace_offset, l.workspace_bytes);
        const bool stray = !checked_step(plan, arena, check, i, at).empty();
        CHECK(stray == !own);
        found += stray;
      }
  }
  CHECK(found > 500);
}

TEST_CASE("ranges are named after the operations") {
  fake::reset();
  const line x;
  cuda_executor run(x.launches(), fake::hash_kernels{}, {.ranges = true});
  REQUIRE(attached);
  pushed.clear();
  run.run(nullptr);
  CHECK(pushed == std::vector<std::string>{"operation 0 (one)", "operation 1 (two)", "operation 2 (three)"});
  throw_on_cuda_error(cudaStreamSynchronize(nullptr));
}

TEST_CASE("the executor's streams do not wait for the legacy stream, and its events do not measure time") {
  fake::reset(2);
  const fake::random_step x(2, 16);
  const cuda_executor run(x.launches({.streams = 3}), fake::hash_kernels{});
  REQUIRE(fake::the().streams.size() == 2);
  for (void* s : fake::the().streams) CHECK(static_cast<cudaStream_t>(s)->flags == cudaStreamNonBlocking);
  REQUIRE(!fake::the().events.empty());
  for (void* e : fake::the().events) CHECK(!static_cast<cudaEvent_t>(e)->timing);
}

TEST_CASE("streams of the plan without a launch are neither forked nor joined") {
  fake::reset();
  training_graph g;
  const tensor_id t = g.add_tensor({.name = "t", .bytes = 64});
  g.add_operation({.name = "make", .outputs = {t}, .seconds = 1});
  g.add_final_output(t);
  const problem p(g, measured_cost{});
  schedule plan;
  plan.compute(op_id{0});
  const std::vector<std::int64_t> at{8128};
  const launch_plan launches(g, p, plan.steps, {at, 8192, 64}, 3);
  const detail::cuda::fork_and_join joints = detail::cuda::forks_and_joins(launches);
  CHECK(joints.forks.empty());
  CHECK(joints.joins.empty());
}

TEST_CASE("all of an arena with a large alignment lies in its allocation") {
  fake::reset();
  training_graph g;
  const tensor_id t = g.add_tensor({.name = "t", .bytes = 4096});
  g.add_operation({.name = "make", .outputs = {t}, .seconds = 1});
  g.add_final_output(t);
  const problem p(g, measured_cost{});
  schedule plan;
  plan.compute(op_id{0});
  const std::vector<std::int64_t> at{4096};
  const cuda_executor run(launch_plan(g, p, plan.steps, {at, 8192, 4096}), fake::hash_kernels{});
  const fake::allocation* a = fake::allocation_of(run.arena().data());
  REQUIRE(a != nullptr);
  CHECK(run.arena().data() + run.arena().size() <= a->data + a->bytes);
}

TEST_CASE("an updated step shows its new graph") {
  fake::reset();
  const line x;
  cuda_executor run(x.launches(), fake::hash_kernels{});
  cuda_captured_step step = run.capture();
  const cudaGraph_t old = step.graph();
  CHECK(run.update(step));
  CHECK(step.graph() != old);
  CHECK(fake::the().graphs.count(step.graph()) == 1);
  CHECK(fake::the().graphs.size() == 1);
}

TEST_CASE("in a capture, the mode of the options says whether kernels and other threads can allocate") {
  const auto check = [](const cuda_options& options, bool here_can, bool there_can) {
    fake::reset();
    const line x;
    bool here = false, there = true;
    cudaError_t other = cudaErrorUnknown;
    cuda_executor run(
        x.launches(),
        [&](const cuda_call& c) {
          const auto allocate = [] {
            void* p = nullptr;
            const cudaError_t e = cudaMalloc(&p, 8);
            if (e == cudaSuccess) fake::free_now(p);
            return e;
          };
          if (here && index(c.operation) == 1) throw_on_cuda_error(allocate());
          if (there) std::thread([&] { other = allocate(); }).join();
          fake::hash_kernels{}(c);
        },
        cuda_options{.capture_mode = options.capture_mode});
    const auto captures = [&] {
      const cuda_stream stream = make_cuda_stream();
      bool done = true;
      try {
        static_cast<void>(run.capture());
        static_cast<void>(run.capture_on(stream.get()));
      } catch (const error&) {
        done = false;
      }
      static_cast<void>(cudaGetLastError());
      return done;
    };
    CHECK(captures() == there_can);
    CHECK((other == cudaSuccess) == there_can);
    here = true;
    there = false;
    CHECK(captures() == here_can);
  };
  check({}, false, true);
  check({.capture_mode = cudaStreamCaptureModeThreadLocal}, false, true);
  check({.capture_mode = cudaStreamCaptureModeGlobal}, false, false);
  check({.capture_mode = cudaStreamCaptureModeRelaxed}, true, true);
}

TEST_CASE("a capture mode that CUDA does not know is refused") {
  fake::reset();
  const line x;
  cuda_executor run(x.launches(), fake::hash_kernels{}, {.capture_mode = static_cast<cudaStreamCaptureMode>(3)});
  CHECK_THROWS_AS(static_cast<void>(run.capture()), cuda_error);
  run.run(nullptr);
  throw_on_cuda_error(cudaStreamSynchronize(nullptr));
}

TEST_CASE("after a step that failed there are no times, and the destructor waits where the wait has failed") {
  fake::reset(2);
  const fake::random_step x(2, 16);
  const fake::resident input{bytes_vector(64)};
  bool bad = false;
  std::size_t waits = 0;
  {
    cuda_executor run(x.launches({.streams = 3}),
                      [&](const cuda_call& c) {
                        fake::hash_kernels{}(c);
                        if (!bad || index(c.operation) != 9) return;
                        fake::the().fail_at = fake::the().counted;  // the wait that follows the throw
                        throw std::runtime_error("no such algorithm");
                      },
                      {.timing = true});
    x.bind(run, input.bytes());
    run.run(nullptr);
    throw_on_cuda_error(cudaDeviceSynchronize());
    CHECK(!run.times().empty());
    bad = true;
    CHECK_THROWS_AS(run.run(nullptr), execution_error);
    CHECK(fake::the().failed == "cudaStreamSynchronize");
    CHECK_THROWS_AS(static_cast<void>(run.times()), bad_argument);
    waits = fake::the().calls["cudaStreamSynchronize"];
  }
  CHECK(fake::the().calls["cudaStreamSynchronize"] == waits + 2);
  CHECK(fake::the().held() == 0);
}
