// SPDX-License-Identifier: BSL-1.0
// Stand-in kernels with random delays, so that a missing wait shows on a fast device, too.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/cuda.cuh"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "shared/cuda_stand_in.cuh"
#include "shared/stand_in.hpp"
#include "support/device_step.cuh"
#include "support/random_graph.hpp"
#include "support/random_layout.hpp"
#include "support/schedules.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

constexpr std::int64_t alignment = 256;
constexpr double longest = 200e-6;  // seconds: many times a small kernel's duration

/// A random graph and schedule with addresses that reuse memory, parameters and inputs in device memory.
struct example {
  training_graph graph;
  problem p;
  schedule plan;
  test::placed placed;
  shared::stand_in_kernels values;
  std::optional<test::device_residents> residents{};

  example(std::uint64_t seed, std::uint32_t operations)
      : graph(test::random_graph(seed, {.operations = operations, .most_bytes = 20'000})),
        p(graph, measured_cost{}),
        plan(test::random_schedule(p, seed).plan),
        placed(test::random_layout(lifetimes_of(p, plan), alignment, seed)),
        values(graph, p) {}

  [[nodiscard]] launch_plan launches(std::uint32_t streams) const {
    return launch_plan(graph, p, plan.steps, {placed.offsets, placed.arena_bytes, alignment}, streams);
  }
  template <class Executor>
  void bind(const shared::cuda_stand_in_kernels& kernels, Executor& run, std::uint64_t seed) {
    residents.emplace(graph, p, kernels, seed);
    residents->bind_all(run);
  }
  template <class Executor>
  void check(const Executor& run, std::uint64_t step, std::uint64_t seed) const {
    test::check_outputs(graph, values, run, values.expected(step, seed));
  }
};

}  // namespace

TEST_CASE("steps whose kernels come early and late leave the values that arithmetic expects, eager and replayed") {
  const cuda_stream stream = make_cuda_stream();
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    example x(seed, 10 + static_cast<std::uint32_t>(seed % 20));
    const shared::cuda_stand_in_kernels kernels(x.graph, x.p, {.delay = longest, .delay_seed = seed});
    cuda_executor run(x.launches(static_cast<std::uint32_t>(2 + seed % 3)), std::ref(kernels));
    x.bind(kernels, run, seed);
    for (std::uint64_t step = 0; step < 3; ++step) run.run(stream.get(), step);  // behind one another
    throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
    kernels.require_no_mistake();
    x.check(run, 2, seed);
    const cuda_captured_step captured = run.capture(7);
    captured.launch(stream.get());
    captured.launch(stream.get());
    throw_on_cuda_error(cudaStreamSynchronize(stream.get()));
    kernels.require_no_mistake();
    x.check(run, 7, seed);
  }
}

// Under compute-sanitizer, one kernel runs behind the other, so that there is no race.
TEST_CASE("with delays, a consumer on a stream that does not wait is noticed" * doctest::test_suite("uninstrumented")) {
  // Two operations, and a caller that runs the second one beside the first: in most runs it reads too early.
  training_graph g;
  const tensor_id a = g.add_tensor({.name = "a", .bytes = 4096});
  const tensor_id b = g.add_tensor({.name = "b", .bytes = 4096});
  g.add_operation({.name = "make", .outputs = {a}, .seconds = 1});
  g.add_operation({.name = "use", .inputs = {a}, .outputs = {b}, .seconds = 1});
  g.add_final_output(b);
  const problem p(g, measured_cost{});
  schedule plan;
  plan.compute(op_id{0});
  plan.compute(op_id{1});
  const std::vector<std::int64_t> at{0, 4096};
  const cuda_stream stream = make_cuda_stream(), other = make_cuda_stream();
  const shared::stand_in_kernels values(g, p);
  std::size_t noticed = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const shared::cuda_stand_in_kernels kernels(g, p, {.delay = longest, .delay_seed = seed});
    cuda_executor run(launch_plan(g, p, plan.steps, {at, 8192, alignment}), [&](cuda_call c) {
      if (index(c.operation) == 1) c.stream = other.get();
      kernels(c);
    });
    throw_on_cuda_error(cudaMemset(run.arena().data(), 0, run.arena().size()));
    throw_on_cuda_error(cudaDeviceSynchronize());
    run.run(stream.get(), seed);
    throw_on_cuda_error(cudaDeviceSynchronize());
    std::vector<std::byte> got(4096);
    throw_on_cuda_error(cudaMemcpy(got.data(), run.output(b).data(), got.size(), cudaMemcpyDeviceToHost));
    bool wrong = shared::stand_in_kernels::value(got) != values.expected(seed, 0).tensors[index(b)];
    try {
      kernels.require_no_mistake();
    } catch (const error&) {
      wrong = true;
    }
    noticed += wrong;
  }
  CHECK(noticed > 0);
}

TEST_CASE("a delay is finite and not negative") {
  const example x(1, 4);
  for (const double delay : {-1.0, std::numeric_limits<double>::infinity(), std::nan("")})
    CHECK_THROWS_AS(shared::cuda_stand_in_kernels(x.graph, x.p, {.delay = delay}), bad_argument);
}
