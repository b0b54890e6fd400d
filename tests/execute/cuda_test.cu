// SPDX-License-Identifier: BSL-1.0
// The CUDA executor on a device, held to the values that stand-in kernels leave behind.
#include "remat/execute/cuda.cuh"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/cuda_profile.cuh"
#include "remat/graph/training_graph.hpp"
#include "remat/memory/plan.hpp"
#include "remat/problem/problem.hpp"
#include "shared/cuda_stand_in.cuh"
#include "shared/stand_in.hpp"
#include "support/device_step.cuh"
#include "support/random_graph.hpp"
#include "support/random_layout.hpp"
#include "support/schedules.hpp"

using namespace remat;
using namespace remat::detail;
using test::fetch;

namespace {

constexpr std::int64_t alignment = 256;

/// What does not hold under compute-sanitizer, which takes time and memory of its own, or takes too long there.
const auto uninstrumented = doctest::test_suite("uninstrumented");

/// A random graph and schedule with addresses that reuse memory, parameters and inputs in device memory.
struct example {
  training_graph graph;
  problem p;
  schedule plan;
  test::placed placed;
  shared::stand_in_kernels values;

  example(std::uint64_t seed, std::uint32_t operations, std::uint32_t bytes)
      : graph(test::random_graph(seed, {.operations = operations, .most_bytes = bytes})),
        p(graph, measured_cost{}),
        plan(test::random_schedule(p, seed).plan),
        placed(test::random_layout(lifetimes_of(p, plan), alignment, seed)),
        values(graph, p) {}

  [[nodiscard]] launch_plan launches(std::uint32_t streams) const {
    return launch_plan(graph, p, plan.steps, {placed.offsets, placed.arena_bytes, alignment}, streams);
  }
};

struct residents : test::device_residents {
  residents(const example& x, const shared::cuda_stand_in_kernels& kernels, std::uint64_t seed)
      : device_residents(x.graph, x.p, kernels, seed) {}
};

template <class Executor>
void check_outputs(const example& x, const Executor& run, const shared::stand_in_values& expected) {
  test::check_outputs(x.graph, x.values, run, expected);
}

/// Two operations that take long, and do not depend on each other, between two short ones.
struct diamond {
  training_graph graph;
  problem p;
  tensor_id a, b, c, d;

  diamond() : graph(make(*this)), p(graph, measured_cost{}) {}
  static training_graph make(diamond& x) {
    training_graph g;
    x.a = g.add_tensor({.name = "a", .bytes = 1024});
    x.b = g.add_tensor({.name = "b", .bytes = 1024});
    x.c = g.add_tensor({.name = "c", .bytes = 1024});
    x.d = g.add_tensor({.name = "d", .bytes = 1024});
    g.add_operation({.name = "first", .outputs = {x.a}, .seconds = 0.01});
    g.add_operation({.name = "left", .inputs = {x.a}, .outputs = {x.b}, .seconds = 0.04});
    g.add_operation({.name = "right", .inputs = {x.a}, .outputs = {x.c}, .seconds = 0.04});
    g.add_operation({.name = "last", .inputs = {x.b, x.c}, .outputs = {x.d}, .seconds = 0.01});
    g.add_final_output(x.d);
    return g;
  }
  [[nodiscard]] launch_plan launches(std::uint32_t streams) const {
    schedule plan;
    for (std::uint32_t o = 0; o < 4; ++o) plan.compute(static_cast<op_id>(o));
    const lifetimes lives = lifetimes_of(p, plan);
    const test::placed at = test::one_behind_the_other(lives, alignment);
    return launch_plan(graph, p, plan.steps, {at.offsets, at.arena_bytes, alignment}, streams);
  }
};

template <int = 0>
__global__ void nothing() {}

float milliseconds(cudaStream_t stream, const std::function<void()>& work) {
  const cuda_event begin = make_cuda_event(cudaEventDefault), end = make_cuda_event(cudaEventDefault);
  throw_on_cuda_error(cudaEventRecord(begin.get(), stream));
  work();
  throw_on_cuda_error(cudaEventRecord(end.get(), stream));
  throw_on_cuda_error(cudaStreamSynchronize(stream));
  float ms = 0;
  throw_on_cuda_error(cudaEventElapsedTime(&ms, begin.get(), end.get()));
  return ms;
}

}  // namespace

TEST_CASE("steps on several streams leave the values that arithmetic expects") {
  const cuda_stream stream = make_cuda_stream();
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    const example x(seed, 6 + static_cast<std::uint32_t>(seed % 30), seed % 3 == 0 ? 20 : 100'000);
    const shared::cuda_stand_in_kernels kernels(x.graph, x.p);
    const residents memory(x, kernels, seed);
    cuda_executor run(x.launches(static_cast<std::uint32_t>(1 + seed % 4)), std::ref(kernels));
    memory.bind_all(run);
    for (const std::uint64_t step : {seed, seed + 1}) {
      run.run(stream.get(), step);
      throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
      kernels.require_no_mistake();
      const shared::stand_in_values expected = x.values.expected(step, seed);
      check_outputs(x, run, expected);
      const std::vector<std::uint64_t> hashes = kernels.hashes_of_operations();
      for (std::size_t o = 0; o < hashes.size(); ++o)
        if (x.graph.outputs(static_cast<op_id>(o)).empty()) CHECK(hashes[o] == expected.effects[o]);
    }
  }
}

TEST_CASE("a captured step is replayed a thousand times, each with its seed, and equals the eager one" *
          uninstrumented) {
  const cuda_stream stream = make_cuda_stream();
  const example x(29, 40, 20'000);
  const cuda_seed seed;
  const shared::cuda_stand_in_kernels kernels(x.graph, x.p, {.seed = &seed});
  const residents memory(x, kernels, 5);
  cuda_executor run(x.launches(3), std::ref(kernels), {.seed = &seed});
  memory.bind_all(run);
  const cuda_captured_step captured = run.capture();
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::uint64_t step = i * i * 0x10001;
    captured.launch(stream.get(), step);
    if (i % 50 != 0) continue;
    throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
    kernels.require_no_mistake();
    check_outputs(x, run, x.values.expected(step, 5));
    std::vector<std::vector<std::byte>> replayed;
    for (const tensor_id t : x.graph.final_outputs()) replayed.push_back(fetch(run.output(t)));
    run.run(stream.get(), step);
    throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
    std::size_t next = 0;
    for (const tensor_id t : x.graph.final_outputs()) CHECK(fetch(run.output(t)) == replayed[next++]);
  }
  throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
  kernels.require_no_mistake();
}

TEST_CASE("what may overlap does: the makespan is within 5 % of the simulated one" * uninstrumented) {
  const cuda_stream stream = make_cuda_stream();
  const diamond x;
  const shared::cuda_stand_in_kernels kernels(x.graph, x.p, {.burn = 1});
  for (const std::uint32_t streams : {1U, 2U}) {
    CAPTURE(streams);
    cuda_executor run(x.launches(streams), std::ref(kernels));
    const double simulated = run.plan().assignment().makespan * 1e3;
    CHECK(simulated == doctest::Approx(streams == 1 ? 100 : 60));
    run.run(stream.get());  // the first loads the kernels
    const double eager = milliseconds(stream.get(), [&] { run.run(stream.get()); });
    CHECK(eager >= simulated * 0.99);
    CHECK(eager <= simulated * 1.05);
    const cuda_captured_step captured = run.capture();
    captured.launch(stream.get());
    const double replayed = milliseconds(stream.get(), [&] { captured.launch(stream.get()); });
    CHECK(replayed >= simulated * 0.99);
    CHECK(replayed <= simulated * 1.05);
  }
}

TEST_CASE("a run returns before its work has ended" * uninstrumented) {
  const cuda_stream stream = make_cuda_stream();
  const diamond x;
  const shared::cuda_stand_in_kernels kernels(x.graph, x.p, {.burn = 1});
  cuda_executor run(x.launches(2), std::ref(kernels));
  run.run(stream.get());
  throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
  run.run(stream.get());
  CHECK(cudaStreamQuery(stream.get()) == cudaErrorNotReady);
  throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
}

TEST_CASE("times of the launches are those that the kernels took, eager and replayed" * uninstrumented) {
  const cuda_stream stream = make_cuda_stream();
  const diamond x;
  const shared::cuda_stand_in_kernels kernels(x.graph, x.p, {.burn = 1});
  cuda_executor run(x.launches(2), std::ref(kernels), {.timing = true});
  const auto check = [&] {
    throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
    const std::vector<cuda_launch_time> times = run.times();
    REQUIRE(times.size() == 4);
    const double milliseconds[] = {10, 40, 40, 10};
    for (std::size_t i = 0; i < 4; ++i) CHECK(times[i].duration == doctest::Approx(milliseconds[i]).epsilon(0.1));
    CHECK(times[3].start >= times[1].start + times[1].duration - 0.1F);
    CHECK(times[3].start >= times[2].start + times[2].duration - 0.1F);
  };
  run.run(stream.get());
  throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
  run.run(stream.get());
  check();
  const cuda_captured_step captured = run.capture();
  captured.launch(stream.get());
  check();
}

TEST_CASE("a launch that the runtime refuses is named, in a run and in a capture; the executor is usable after") {
  const cuda_stream stream = make_cuda_stream();
  const diamond x;
  const shared::cuda_stand_in_kernels good(x.graph, x.p);
  bool bad = true;
  cuda_executor run(x.launches(2), [&](const cuda_call& c) {
    if (bad && index(c.operation) == 2)
      nothing<><<<1, 5000, 0, c.stream>>>();
    else
      good(c);
  });
  const auto expect = [&](auto&& step, auto&& nested) {
    try {
      step();
      FAIL("the error was not seen");
    } catch (const execution_error& e) {
      CHECK(index(e.operation()) == 2);
      CHECK(std::string(e.what()).find("operation 2 (right)") == 0);
      try {
        std::rethrow_if_nested(e);
      } catch (const cuda_error& inner) {
        nested(inner);
      }
    }
  };
  expect([&] { run.run(stream.get()); },
         [](const cuda_error& inner) {
           // CUDA does not say which: the driver for an H200 gives the second.
           CHECK((inner.code() == cudaErrorInvalidConfiguration || inner.code() == cudaErrorInvalidValue));
         });
  // In a capture it may be an error of the capture, too.
  expect([&] { static_cast<void>(run.capture()); },
         [](const cuda_error& inner) { MESSAGE(std::string(inner.what())); });
  bad = false;
  run.run(stream.get(), 3);
  const cuda_captured_step captured = run.capture(3);
  captured.launch(stream.get());
  throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
  good.require_no_mistake();
  CHECK(shared::stand_in_kernels::value(fetch(run.output(x.d))) ==
        shared::stand_in_kernels(x.graph, x.p).expected(3, 0).tensors[index(x.d)]);
}

TEST_CASE("a kernel that waits during a capture is named, and the streams can be captured again") {
  const diamond x;
  const shared::cuda_stand_in_kernels good(x.graph, x.p);
  bool waits = true;
  cuda_executor run(x.launches(2), [&](const cuda_call& c) {
    if (waits && index(c.operation) == 1) throw_on_cuda_error(cudaStreamSynchronize(c.stream), "waiting");
    good(c);
  });
  try {
    static_cast<void>(run.capture());
    FAIL("captured");
  } catch (const execution_error& e) {
    CHECK(index(e.operation()) == 1);
  }
  waits = false;
  const cuda_captured_step captured = run.capture();
  captured.launch(nullptr);
  throw_on_cuda_error(cudaDeviceSynchronize());
  good.require_no_mistake();
}

TEST_CASE("arenas from a pool and of the caller; poison before and behind") {
  const cuda_stream stream = make_cuda_stream();
  const example x(11, 20, 3'000);
  const shared::cuda_stand_in_kernels kernels(x.graph, x.p);
  const residents memory(x, kernels, 2);
  const shared::stand_in_values expected = x.values.expected(1, 2);
  const auto bytes = static_cast<std::size_t>(x.placed.arena_bytes);
  cuda_memory mine(bytes);
  const auto check = [&](cuda_options options) {
    cuda_executor run(x.launches(3), std::ref(kernels), std::move(options));
    memory.bind_all(run);
    run.run(stream.get(), 1);
    throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
    kernels.require_no_mistake();
    check_outputs(x, run, expected);
  };
  check({.arena = cuda_memory(mine.bytes())});
  check({.arena = cuda_memory(bytes, stream.get())});
  check({.debug = cuda_debug::synchronize});
  check({.debug = cuda_debug::poison, .timing = true, .ranges = true});
  CHECK_THROWS_AS(
      cuda_executor(x.launches(1), std::ref(kernels), {.arena = cuda_memory(mine.bytes().first(bytes - 1))}),
      bad_argument);
}

TEST_CASE("a captured step gets other inputs and outputs, and needs no new instance") {
  const cuda_stream stream = make_cuda_stream();
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    const example x(seed, 16, 200);
    const shared::cuda_stand_in_kernels kernels(x.graph, x.p);
    const residents inputs[] = {{x, kernels, 1}, {x, kernels, 2}};
    std::vector<tensor_id> outputs;
    for (const tensor_id t : x.graph.final_outputs())
      if (!x.p.graph().always_resident[index(t)]) outputs.push_back(t);
    launch_options options;
    options.streams = 3;
    options.bound_outputs = outputs;
    const launch_plan plan(x.graph, x.p, x.plan.steps, {x.placed.offsets, x.placed.arena_bytes, alignment}, options);
    cuda_executor run(plan, std::ref(kernels));
    std::vector<cuda_memory> memory[2];
    const auto bind = [&](std::size_t which) {
      inputs[which].bind_all(run);
      for (const tensor_id t : outputs) {
        memory[which].emplace_back(static_cast<std::size_t>(x.graph.bytes(t)));
        run.bind_output(t, memory[which].back().bytes());
      }
    };
    bind(0);
    cuda_captured_step captured = run.capture(5);
    const cudaGraphExec_t exec = captured.exec();
    captured.launch(stream.get());
    bind(1);
    CHECK(run.update(captured, 6));
    CHECK(captured.exec() == exec);
    captured.launch(stream.get());
    throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
    for (const std::size_t which : {0, 1}) {
      const shared::stand_in_values expected = x.values.expected(5 + which, 1 + which);
      for (std::size_t i = 0; i < outputs.size(); ++i)
        CHECK(shared::stand_in_kernels::value(fetch(memory[which][i].bytes())) == expected.tensors[index(outputs[i])]);
    }
    kernels.require_no_mistake();
  }
}

TEST_CASE("a captured step is a child graph of the caller's graph, and of a capture; its copy is updated") {
  const cuda_stream stream = make_cuda_stream();
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    const example x(seed, 20, 400);
    const shared::cuda_stand_in_kernels kernels(x.graph, x.p);
    const residents inputs[] = {{x, kernels, 1}, {x, kernels, 2}};
    cuda_executor run(x.launches(static_cast<std::uint32_t>(1 + seed % 3)), std::ref(kernels));
    inputs[0].bind_all(run);
    cuda_captured_step step = run.capture(5);
    cudaGraph_t made{}, taken{};
    throw_on_cuda_error(cudaGraphCreate(&made, 0));
    const cuda_graph built(made);
    const cudaGraphNode_t first = step.add_to(made), second = step.add_to(made, std::span(&first, 1));
    throw_on_cuda_error(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 2; ++i) step.launch(stream.get());
    throw_on_cuda_error(cudaStreamEndCapture(stream.get(), &taken));
    const cuda_graph captured(taken);
    std::size_t nodes = 0;
    throw_on_cuda_error(cudaGraphGetNodes(taken, nullptr, &nodes));
    CHECK(nodes == 2);
    const cuda_graph_exec of_built = make_cuda_graph_exec(built), of_captured = make_cuda_graph_exec(captured);
    const auto check = [&](const cuda_graph_exec& exec, std::uint64_t step_seed, std::uint64_t input) {
      throw_on_cuda_error(cudaGraphLaunch(exec.get(), stream.get()));
      throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
      check_outputs(x, run, x.values.expected(step_seed, input));
    };
    check(of_built, 5, 1);
    check(of_captured, 5, 1);
    inputs[1].bind_all(run);
    CHECK(run.update(step, 6));
    check(of_built, 5, 1);
    throw_on_cuda_error(cudaGraphExecChildGraphNodeSetParams(of_built.get(), second, step.graph()));
    check(of_built, 6, 2);
    kernels.require_no_mistake();
    throw_on_cuda_error(cudaGraphLaunch(of_captured.get(), stream.get()));  // in flight when the executor is destroyed
  }
}

TEST_CASE("the plan's streams and the captured one are the caller's, with priorities; default streams run steps") {
  int least = 0, greatest = 0;
  throw_on_cuda_error(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  const cuda_stream stream = make_cuda_stream(cudaStreamNonBlocking, greatest);
  const cuda_stream blocking = make_cuda_stream(cudaStreamDefault, greatest), other = make_cuda_stream();
  const example x(3, 20, 200);
  const shared::cuda_stand_in_kernels kernels(x.graph, x.p);
  const residents inputs(x, kernels, 1);
  cuda_executor run(x.launches(3), std::ref(kernels), {.streams = {blocking.get(), other.get()}});
  inputs.bind_all(run);
  CHECK(run.num_own_streams() == 0);
  for (const cudaStream_t s : {stream.get(), cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
    run.run(s, 7);
    throw_on_cuda_error(cudaStreamSynchronize(s));
    check_outputs(x, run, x.values.expected(7, 1));
    if (s == stream.get() || s == cudaStreamPerThread) {
      run.capture_on(s, 8).launch(s);
      throw_on_cuda_error(cudaStreamSynchronize(s));
      check_outputs(x, run, x.values.expected(8, 1));
    } else {
      CHECK_THROWS_AS(static_cast<void>(run.capture_on(s)), bad_argument);
    }
  }
  kernels.require_no_mistake();
}

TEST_CASE("an arena of a pool is used on other streams, and freed behind the work in flight") {
  const cuda_stream home = make_cuda_stream(), stream = make_cuda_stream();
  const example x(9, 20, 4000);
  const shared::cuda_stand_in_kernels kernels(x.graph, x.p, {.burn = 1e-4});
  const residents inputs(x, kernels, 1);
  for (std::uint64_t i = 0; i < 20; ++i) {
    CAPTURE(i);
    cuda_executor run(x.launches(2), std::ref(kernels),
                      {.arena = cuda_memory(static_cast<std::size_t>(x.placed.arena_bytes), home.get())});
    inputs.bind_all(run);
    if (i % 2 == 0)
      run.run(stream.get(), i);
    else
      run.capture(i).launch(stream.get());
  }
  throw_on_cuda_error(cudaDeviceSynchronize());
  kernels.require_no_mistake();
}

TEST_CASE("operations are measured by replays, the shortest by launches in a row" * uninstrumented) {
  const diamond x;
  const shared::cuda_stand_in_kernels kernels(x.graph, x.p, {.burn = 1e-1});
  cuda_executor run(x.launches(1), std::ref(kernels), {.timing = true});
  const profile_report report = profile(run);
  CHECK(report.runs == 10);
  REQUIRE(report.times.complete());
  const double seconds[] = {1e-3, 4e-3, 4e-3, 1e-3};
  for (std::size_t o = 0; o < 4; ++o) CHECK(report.times.seconds[o] == doctest::Approx(seconds[o]).epsilon(0.1));
  CHECK(report.step_seconds >= 1e-2);
  const shared::cuda_stand_in_kernels quick(x.graph, x.p);
  cuda_executor short_run(x.launches(1), std::ref(quick), {.timing = true});
  const profile_report rows = profile(short_run, cuda_profile_options{.repeat_below = 1, .repeats = 10});
  for (const double s : rows.times.seconds) CHECK(s > 0);
}

TEST_CASE("the arena is the only memory that a run takes" * uninstrumented) {
  const example x(13, 30, 1'000'000);
  const shared::cuda_stand_in_kernels kernels(x.graph, x.p);
  const residents memory(x, kernels, 2);
  cuda_executor run(x.launches(3), std::ref(kernels));
  memory.bind_all(run);
  run.run(nullptr);
  throw_on_cuda_error(cudaDeviceSynchronize());
  std::size_t before = 0, after = 0, total = 0;
  throw_on_cuda_error(cudaMemGetInfo(&before, &total));
  for (std::uint64_t i = 0; i < 100; ++i) run.run(nullptr, i);
  throw_on_cuda_error(cudaDeviceSynchronize());
  throw_on_cuda_error(cudaMemGetInfo(&after, &total));
  CHECK(after == before);
  CHECK(run.arena().size() == static_cast<std::size_t>(x.placed.arena_bytes));
}

TEST_CASE("stand-in kernels notice a word that is wrong") {
  const diamond x;
  const shared::cuda_stand_in_kernels good(x.graph, x.p);
  cuda_executor run(x.launches(1), [&](const cuda_call& c) {
    good(c);
    if (index(c.operation) == 1) throw_on_cuda_error(cudaMemsetAsync(c.outputs[0].data() + 512, 0x11, 3, c.stream));
  });
  run.run(nullptr);
  CHECK_THROWS_WITH_AS(good.require_no_mistake(),
                       "operation 3: input tensor 1 (b) does not follow from its first word, at byte 512", error);
}
