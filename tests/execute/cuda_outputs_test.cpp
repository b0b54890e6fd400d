// SPDX-License-Identifier: BSL-1.0

// Outputs and inputs in the caller's memory, and captured steps that get other addresses, on a fake CUDA runtime.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/execute/cuda.cuh"
#include "remat/execute/launch_plan.hpp"
#include "support/fake_cuda.hpp"
#include "support/fake_cuda_steps.hpp"

using namespace remat;
using namespace remat::detail;
namespace fake = remat::test::fake_cuda;
using fake::bytes_vector;

namespace {

void wait(cudaStream_t s) { throw_on_cuda_error(cudaStreamSynchronize(s)); }

}  // namespace

TEST_CASE("outputs are written to the caller's memory, which later steps of others leave as it is") {
  std::size_t compared = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const fake::random_step x(seed, 4 + static_cast<std::uint32_t>(seed % 20));
    fake::reset(seed);
    const bytes_vector content(64, std::byte{7});
    const fake::resident input(content);
    const cuda_stream stream = make_cuda_stream();
    const auto arena = static_cast<std::size_t>(x.where.arena_bytes);
    const cuda_memory memory(arena);
    const launch_options options{.streams = static_cast<std::uint32_t>(1 + seed % 4), .bound_outputs = x.outputs()};
    const fake::output_memory first(x, std::byte{1}), second(x, std::byte{2});
    cuda_executor one(x.launches(options), fake::hash_kernels{}, {.arena = cuda_memory(memory.bytes())});
    cuda_executor two(x.launches(options), fake::hash_kernels{}, {.arena = cuda_memory(memory.bytes())});
    x.bind(one, input.bytes());
    x.bind(two, input.bytes());
    if (!x.outputs().empty() && first.content() != bytes_vector())
      CHECK_THROWS_AS(one.run(stream.get()), bad_argument);  // an output is not bound
    first.bind(one);
    second.bind(two);
    one.run(stream.get(), 1);
    const cuda_captured_step captured = two.capture(2);
    captured.launch(stream.get());  // in the same arena, behind the first step
    wait(stream.get());
    CHECK(first.content() == x.expected(1, content));
    CHECK(second.content() == x.expected(2, content));
    for (const tensor_id t : x.outputs()) compared += one.output(t).size();
  }
  CHECK(compared > 300);
}

TEST_CASE("gradients add up over micro-batches, eager and replayed") {
  std::size_t compared = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const fake::random_step x(seed, 4 + static_cast<std::uint32_t>(seed % 12), false);
    fake::reset(seed);
    const bytes_vector content(64, std::byte{9});
    const fake::resident input(content);
    const cuda_stream stream = make_cuda_stream();
    const launch_options options{.streams = static_cast<std::uint32_t>(1 + seed % 3),
                                 .accumulated_outputs = x.outputs(),
                                 .sums_may_be_read = true};
    const fake::output_memory sums(x, std::byte{3});
    bytes_vector expected = sums.content();
    cuda_executor run(x.launches(options), fake::hash_kernels{});
    x.bind(run, input.bytes());
    sums.bind(run);
    run.run(stream.get(), 5);
    const cuda_captured_step captured = run.capture(5);
    for (int i = 0; i < 3; ++i) captured.launch(stream.get());
    wait(stream.get());
    if (expected.empty()) continue;
    for (int i = 0; i < 4; ++i) expected = x.expected(5, content, expected);
    CHECK(sums.content() == expected);
    compared += expected.size();
  }
  CHECK(compared > 300);
}

TEST_CASE("a captured step gets other addresses without being instantiated again") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const fake::random_step x(seed, 4 + static_cast<std::uint32_t>(seed % 20));
    fake::reset(seed);
    const bytes_vector contents[] = {bytes_vector(64, std::byte{7}), bytes_vector(64, std::byte{11})};
    const fake::resident inputs[] = {fake::resident(contents[0]), fake::resident(contents[1])};
    const cuda_stream stream = make_cuda_stream(), side = make_cuda_stream();
    const launch_options options{.streams = static_cast<std::uint32_t>(1 + seed % 4), .bound_outputs = x.outputs()};
    const fake::output_memory first(x, std::byte{1}), second(x, std::byte{2}), third(x, std::byte{3});
    cuda_executor run(x.launches(options), fake::hash_kernels{}, {.timing = seed % 2 == 0});
    x.bind(run, inputs[0].bytes());
    first.bind(run);
    cuda_captured_step captured = run.capture(1);
    captured.launch(stream.get());  // stays with the old addresses, though it runs after the update
    x.bind(run, inputs[1].bytes());
    second.bind(run);
    CHECK(run.update(captured, 2));
    captured.launch(stream.get());
    third.bind(run);
    CHECK(run.update_on(side.get(), captured, 3));
    captured.launch(stream.get());
    wait(stream.get());
    CHECK(first.content() == x.expected(1, contents[0]));
    CHECK(second.content() == x.expected(2, contents[1]));
    CHECK(third.content() == x.expected(3, contents[1]));
    CHECK(fake::calls("cudaGraphInstantiate") == 1);
    CHECK(fake::calls("cudaGraphExecUpdate") == 2);
    CHECK(fake::the().graphs.size() == 1);
  }
}

TEST_CASE("an output that a later run or replay overwrites is refused by its number") {
  const fake::random_step x(17, 12);
  fake::reset();
  const fake::resident input(bytes_vector(64, std::byte{7}));
  const cuda_stream stream = make_cuda_stream();
  const tensor_id t = x.outputs().front();
  cuda_executor run(x.launches({}), fake::hash_kernels{});
  x.bind(run, input.bytes());
  CHECK(run.generation() == 0);
  run.run(stream.get(), 1);
  const std::uint64_t first = run.generation();
  CHECK(run.output(t, first).data() == run.output(t).data());
  cuda_captured_step captured = run.capture(2);  // overwrites nothing
  static_cast<void>(run.update(captured, 3));
  CHECK(run.output(t, first).size() == run.output(t).size());
  const std::uint64_t second = captured.launch(stream.get());
  CHECK(second == first + 1);
  CHECK(run.output(t, second).data() == run.output(t).data());
  CHECK_THROWS_WITH_AS(
      static_cast<void>(run.output(t, first)),
      (run.plan().label(t) + " of step number 1 is asked for; the last one that was enqueued is number 2").c_str(),
      bad_argument);
  run.run(stream.get(), 4);
  CHECK_THROWS_AS(static_cast<void>(run.output(t, second)), bad_argument);
  wait(stream.get());
}

TEST_CASE("a captured step lists the launch of each of its nodes") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    const fake::random_step x(seed, 4 + static_cast<std::uint32_t>(seed % 20));
    fake::reset(seed);
    const fake::resident input(bytes_vector(64, std::byte{7}));
    const cuda_stream side = make_cuda_stream();
    const cuda_event fork = make_cuda_event(), join = make_cuda_event();
    // Every third operation has a second node behind the first, every fourth one beside it.
    cuda_executor run(x.launches({.streams = static_cast<std::uint32_t>(1 + seed % 4)}),
                      [&](const cuda_call& c) {
                        const std::string name = "operation " + std::to_string(index(c.operation));
                        fake::hash_kernels{}(c);
                        if (index(c.operation) % 3 == 0)
                          fake::enqueue(
                              c.stream, [] {}, {}, name);
                        if (index(c.operation) % 4 != 0) return;
                        throw_on_cuda_error(cudaEventRecord(fork.get(), c.stream));
                        throw_on_cuda_error(cudaStreamWaitEvent(side.get(), fork.get(), 0));
                        fake::enqueue(
                            side.get(), [] {}, {}, name);
                        throw_on_cuda_error(cudaEventRecord(join.get(), side.get()));
                        throw_on_cuda_error(cudaStreamWaitEvent(c.stream, join.get(), 0));
                      },
                      {.timing = seed % 2 == 0, .ranges = true});
    x.bind(run, input.bytes());
    const auto check = [&](const cuda_captured_step& step) {
      std::set<cudaGraphNode_t> listed;
      std::uint32_t last = 0;
      for (const cuda_step_node& n : step.nodes()) {
        CHECK(listed.insert(n.node).second);
        CHECK(n.launch >= last);
        last = n.launch;
        const launch& l = run.plan().launches()[n.launch];
        CHECK(n.node->work->name == "operation " + std::to_string(index(l.operation)));
      }
      std::size_t kernels = 0;
      for (const auto& n : step.graph()->nodes) {
        if (n->work->type != cudaGraphNodeTypeKernel) continue;
        ++kernels;
        CHECK(listed.count(n.get()) == 1);
      }
      CHECK(kernels == listed.size());
    };
    cuda_captured_step step = run.capture(1);
    check(step);
    static_cast<void>(run.update(step, 2));
    check(step);
  }
}

TEST_CASE("a step whose nodes change is instantiated again") {
  const fake::random_step x(17, 12);
  fake::reset();
  {
    const bytes_vector content(64, std::byte{7});
    const fake::resident input(content), other(content);
    const cuda_stream stream = make_cuda_stream();
    const fake::output_memory to(x, std::byte{1});
    bool twice = false;
    cuda_executor run(x.launches({.streams = 2, .bound_outputs = x.outputs()}), [&](const cuda_call& c) {
      fake::hash_kernels{}(c);
      if (twice)
        fake::enqueue(
            c.stream, [] {}, {}, "another kernel");
    });
    x.bind(run, input.bytes());
    to.bind(run);
    cuda_captured_step captured = run.capture(1);
    const cudaGraphExec_t before = captured.exec();
    twice = true;
    const cuda_step_update changed = run.update(captured, 2);
    CHECK_FALSE(changed);
    CHECK(changed.result == cudaGraphExecUpdateErrorTopologyChanged);
    CHECK(changed.reason() == std::string("the nodes or their edges have changed"));
    CHECK(captured.exec() != before);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
    CHECK(fake::calls("cudaGraphInstantiate") == 2);
    captured.launch(stream.get());
    wait(stream.get());
    CHECK(to.content() == x.expected(2, content));
  }
  CHECK(fake::the().held() == 0);
}

TEST_CASE("an update that fails is an error, and the next one is right") {
  const fake::random_step x(23, 12);
  const bytes_vector content(64, std::byte{7});
  std::size_t faults = 0;
  for (std::size_t at = 0;; ++at) {
    CAPTURE(at);
    fake::reset(at);
    bool thrown = false;
    {
      const fake::resident input(content);
      const cuda_stream stream = make_cuda_stream();
      const fake::output_memory to(x, std::byte{1});
      bool twice = false;
      cuda_executor run(x.launches({.streams = 3, .bound_outputs = x.outputs()}), [&](const cuda_call& c) {
        fake::hash_kernels{}(c);
        if (twice)
          fake::enqueue(
              c.stream, [] {}, {}, "another kernel");
      });
      x.bind(run, input.bytes());
      to.bind(run);
      cuda_captured_step captured = run.capture(1);
      twice = true;  // so that every call of both ways is met
      fake::the().counted = 0;
      fake::the().fail_at = at;
      fake::the().fail_with = cudaErrorInvalidConfiguration;
      try {
        static_cast<void>(run.update(captured, 2));
      } catch (const error&) {
        thrown = true;
      }
      fake::the().fail_at = ~std::size_t{0};
      CHECK(thrown == !fake::the().failed.empty());
      CHECK(cudaPeekAtLastError() == cudaSuccess);
      faults += thrown;
      static_cast<void>(run.update(captured, 3));
      captured.launch(stream.get());
      wait(stream.get());
      CHECK(to.content() == x.expected(3, content));
    }
    REQUIRE(fake::the().held() == 0);
    if (!thrown) break;
  }
  CHECK(faults > 10);
}

TEST_CASE("a step of another executor is not updated") {
  const fake::random_step x(5, 8);
  fake::reset();
  const fake::resident input(bytes_vector(64, std::byte{7}));
  cuda_executor run(x.launches({}), fake::hash_kernels{}), other(x.launches({}), fake::hash_kernels{});
  x.bind(run, input.bytes());
  x.bind(other, input.bytes());
  cuda_captured_step captured = run.capture();
  CHECK_THROWS_WITH_AS(static_cast<void>(other.update(captured)),
                       "the step was captured by another executor; capture it with this one", bad_argument);
  CHECK(run.update(captured));
}

TEST_CASE("executors share one arena, and their steps and replays alternate on one stream") {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    const fake::random_step x(seed, 12), y(seed + 100, 20);
    fake::reset(seed);
    const bytes_vector content(64, std::byte{7});
    const fake::resident input(content);
    const cuda_stream stream = make_cuda_stream();
    const cuda_memory memory(static_cast<std::size_t>(std::max(x.where.arena_bytes, y.where.arena_bytes)) + 1);
    cuda_executor one(x.launches({.streams = 3}), fake::hash_kernels{}, {.arena = cuda_memory(memory.bytes())});
    cuda_executor two(y.launches({.streams = 2}), fake::hash_kernels{}, {.arena = cuda_memory(memory.bytes())});
    x.bind(one, input.bytes());
    y.bind(two, input.bytes());
    const cuda_captured_step replay_one = one.capture(1), replay_two = two.capture(2);
    bytes_vector of_one[4], of_two[4];
    for (int i = 0; i < 4; ++i) {
      if (i % 2 == 0)
        replay_one.launch(stream.get());
      else
        one.run(stream.get(), 1);
      x.fetch(one, stream.get(), of_one[i]);
      if (i < 2)
        replay_two.launch(stream.get());
      else
        two.run(stream.get(), 2);
      y.fetch(two, stream.get(), of_two[i]);
    }
    wait(stream.get());
    for (int i = 0; i < 4; ++i) {
      CHECK(of_one[i] == x.expected(1, content));
      CHECK(of_two[i] == y.expected(2, content));
    }
  }
}

TEST_CASE("an arena above its budget is refused before anything is allocated") {
  const fake::random_step x(5, 10);
  REQUIRE(x.where.arena_bytes > 1);
  fake::reset();
  CHECK_THROWS_AS(cuda_executor(x.launches({}), fake::hash_kernels{}, {.arena_budget = x.where.arena_bytes - 1}),
                  bad_argument);
  CHECK_THROWS_AS(cuda_executor(x.launches({}), fake::hash_kernels{}, {.arena_budget = -1}), bad_argument);
  CHECK(fake::calls("cudaMalloc") == 0);
  CHECK_NOTHROW(cuda_executor(x.launches({}), fake::hash_kernels{}, {.arena_budget = x.where.arena_bytes}));
}

TEST_CASE("poison: a bound output begins as poison, an accumulated one keeps what it holds") {
  training_graph g;
  const tensor_id a = g.add_tensor({.name = "a", .bytes = 8}), b = g.add_tensor({.name = "b", .bytes = 8});
  g.add_operation({.name = "one", .outputs = {a}, .seconds = 1});
  g.add_operation({.name = "two", .outputs = {b}, .seconds = 1});
  g.add_final_output(a);
  g.add_final_output(b);
  const problem p(g, measured_cost{});
  fake::reset();
  const fake::resident written(bytes_vector(8, std::byte{1})), added(bytes_vector(8, std::byte{2}));
  std::vector<std::byte> seen;
  cuda_executor run(launch_plan(g, p, listed_order(p), {.bound_outputs = {a}, .accumulated_outputs = {b}}),
                    [&](const cuda_call& c) {
                      fake::enqueue(
                          c.stream, [&seen, out = c.outputs[0]] { seen.push_back(out[0]); },
                          {fake::read_of(c.outputs[0])}, "look");
                    },
                    {.debug = cuda_debug::poison});
  run.bind_output(a, written.bytes());
  run.bind_output(b, added.bytes());
  const cuda_stream stream = make_cuda_stream();
  run.run(stream.get());
  CHECK(seen == std::vector{std::byte{detail::cuda::poison}, std::byte{2}});
}

TEST_CASE("a kernel that writes outside of its outputs is named; one that does not passes, on several streams") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    CAPTURE(seed);
    const fake::random_step x(seed, 12);
    fake::reset(seed);
    const bytes_vector content(64, std::byte{7});
    const fake::resident input(content);
    const fake::output_memory to(x, std::byte{1});
    const cuda_stream stream = make_cuda_stream();
    const cuda_memory memory(static_cast<std::size_t>(x.where.arena_bytes) + 64);
    bool stray = false;
    cuda_executor run(x.launches({.streams = static_cast<std::uint32_t>(1 + seed % 3), .bound_outputs = x.outputs()}),
                      [&](const cuda_call& c) {
                        fake::hash_kernels{}(c);
                        if (!stray || index(c.operation) != 1) return;
                        const std::span<std::byte> beyond = memory.bytes().last(1);
                        fake::enqueue(
                            c.stream, [beyond] { beyond[0] = std::byte{1}; }, {fake::write_of(beyond)}, "stray");
                      },
                      {.arena = cuda_memory(memory.bytes()), .debug = cuda_debug::check_writes, .regions = true});
    x.bind(run, input.bytes());
    to.bind(run);
    for (const std::uint64_t step : {1, 2}) {
      CHECK(run.run(stream.get(), step) == run_status::done);
      CHECK(to.content() == x.expected(step, content));
    }
    stray = true;
    try {
      run.run(stream.get(), 3);
      FAIL("the write was not seen");
    } catch (const execution_error& e) {
      CHECK(index(e.operation()) == 1);
      CHECK(std::string(e.what()).find("a kernel has written to byte " + std::to_string(memory.size() - 1)) !=
            std::string::npos);
    }
  }
  CHECK_THROWS_AS(cuda_executor(fake::random_step(1).launches({}), fake::hash_kernels{}, {.regions = true}),
                  bad_argument);
}
