// SPDX-License-Identifier: BSL-1.0
// Schedules with copies to the host on a device, held to the values that stand-in kernels leave behind.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/execute/cuda.cuh"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/lifetime.hpp"
#include "shared/cuda_stand_in.cuh"
#include "shared/stand_in.hpp"
#include "support/copy_schedules.hpp"
#include "support/device_step.cuh"
#include "support/random_graph.hpp"
#include "support/random_layout.hpp"

using namespace remat;

namespace {

constexpr std::int64_t alignment = 256;

/// A random graph and a random schedule with copies, with addresses that reuse memory on both sides.
struct example {
  training_graph graph;
  problem p;
  schedule plan;
  test::placed device, host;
  shared::stand_in_kernels values;

  example(std::uint64_t seed, std::uint32_t operations, std::uint32_t bytes)
      : graph(test::random_graph(seed, {.operations = operations, .most_bytes = bytes})),
        p(linked(problem(graph, measured_cost{}), seed)),
        plan(test::random_copy_schedule(p, seed).plan),
        device(test::random_layout(lifetimes_of(p, plan), alignment, seed)),
        host(test::random_layout(lifetimes_of(p, plan).host, alignment, seed)),
        values(graph, p) {}

  [[nodiscard]] launch_plan launches() const {
    launch_options options;
    options.host_layout = arena_layout(host.offsets, host.arena_bytes, alignment);
    return launch_plan(graph, p, plan.steps, arena_layout(device.offsets, device.arena_bytes, alignment), options);
  }

 private:
  static problem linked(const problem& p, std::uint64_t seed) { return p.with_link(test::random_link(p, seed)); }
};

struct residents : test::device_residents {
  residents(const example& x, const shared::cuda_stand_in_kernels& kernels, std::uint64_t seed)
      : device_residents(x.graph, x.p, kernels, seed) {}
};

template <class Executor>
void check_outputs(const example& x, const Executor& run, const shared::stand_in_values& expected) {
  test::check_outputs(x.graph, x.values, run, expected);
}

}  // namespace

TEST_CASE("random schedules with copies leave the values of the listed order, eager and replayed") {
  std::size_t copies = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const example x(seed, 4 + static_cast<std::uint32_t>(seed % 16), seed % 3 == 0 ? 1U << 20U : 4096U);
    // With delays, a stream falls behind the others by more than its work takes: a missing wait would show.
    shared::cuda_stand_in_kernels kernels(x.graph, x.p, {.delay = seed % 2 == 0 ? 2e-4 : 0, .delay_seed = seed});
    const residents memory(x, kernels, seed);
    cuda_executor run(x.launches(), std::ref(kernels));
    memory.bind_all(run);
    for (const launch& l : run.plan().launches()) copies += l.is_copy();
    const cuda_stream stream = make_cuda_stream();
    const shared::stand_in_values expected = x.values.expected(5, seed);
    const auto check = [&] {
      throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
      kernels.require_no_mistake();
      check_outputs(x, run, expected);
    };
    run.run(stream.get(), 5);
    check();
    const cuda_captured_step captured = run.capture(5);
    for (int i = 0; i < 5; ++i) captured.launch(stream.get());
    check();
  }
  CHECK(copies > 300);
}

TEST_CASE("debug modes let right schedules with copies pass") {
  for (const cuda_debug debug : {cuda_debug::synchronize, cuda_debug::poison, cuda_debug::check_writes}) {
    const example x(5, 12, 4096);
    shared::cuda_stand_in_kernels kernels(x.graph, x.p);
    const residents memory(x, kernels, 5);
    cuda_executor run(x.launches(), std::ref(kernels), {.debug = debug});
    memory.bind_all(run);
    run.run(nullptr, 5);
    throw_on_cuda_error(cudaDeviceSynchronize());
    kernels.require_no_mistake();
    check_outputs(x, run, x.values.expected(5, 5));
  }
}

TEST_CASE("copies run beside the computes, eager and replayed") {
  constexpr std::int64_t bytes = std::int64_t{1} << 28;
  training_graph g("beside");
  const tensor_id a = g.add_tensor({"a", bytes}), b = g.add_tensor({"b", 1024}), c = g.add_tensor({"c", 1024}),
                  d = g.add_tensor({"d", 1024});
  const op_id make = g.add_operation({.name = "make", .outputs = {a}, .seconds = 0.001});
  const op_id other = g.add_operation({.name = "other", .outputs = {b}, .seconds = 0.03});
  const op_id third = g.add_operation({.name = "third", .inputs = {b}, .outputs = {c}, .seconds = 0.03});
  const op_id last = g.add_operation({.name = "last", .inputs = {a, c}, .outputs = {d}, .seconds = 0.001});
  g.add_final_output(d);
  schedule plan;
  plan.compute(make);
  plan.offload(a);
  plan.compute(other);
  plan.free(a);
  plan.prefetch(a);
  plan.compute(third);
  plan.compute(last);
  const problem p = problem(g, measured_cost{}).with_link({});
  const launch_plan launches(g, p, plan);
  shared::cuda_stand_in_kernels kernels(g, p, {.burn = 1});
  cuda_executor run(launches, std::ref(kernels), {.timing = true});
  const auto overlap = [&](std::size_t copy, std::size_t compute) {
    throw_on_cuda_error(cudaDeviceSynchronize());
    const std::vector<cuda_launch_time> t = run.times();
    return t[copy].start < t[compute].start + t[compute].duration &&
           t[compute].start < t[copy].start + t[copy].duration;
  };
  run.run(nullptr);  // 0 make, 1 offload, 2 other, 3 prefetch, 4 third, 5 last
  CHECK(overlap(1, 2));
  CHECK(overlap(3, 4));
  const cuda_captured_step captured = run.capture();
  captured.launch(nullptr);
  CHECK(overlap(1, 2));
  CHECK(overlap(3, 4));
  kernels.require_no_mistake();
}
