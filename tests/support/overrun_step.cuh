// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// A training step on a device whose second kernel can leave its output, for the tests of what notices that.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/cuda.cuh"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat::test {

template <int = 0>
__global__ void put_all(int* at, int elements) {
  for (int i = static_cast<int>(threadIdx.x); i < elements; i += static_cast<int>(blockDim.x)) at[i] = i;
}

/// Runs `steps` steps of two operations, `first`: → a, `second`: a → b, in an arena of three tensors of 256 bytes: b at
/// byte 0, a at byte `input_at`. The second kernel writes `surplus` elements behind its output. Waits for the device,
/// and checks what is in b. Lets the executor's errors through.
inline void run_with_overrun(std::int64_t input_at, int surplus, cuda_debug debug, bool regions, int steps) {
  training_graph g;
  const tensor_id a = g.add_tensor({.name = "a", .bytes = 256});
  const tensor_id b = g.add_tensor({.name = "b", .bytes = 256});
  g.add_operation({.name = "first", .outputs = {a}, .seconds = 1});
  g.add_operation({.name = "second", .inputs = {a}, .outputs = {b}, .seconds = 1});
  g.add_final_output(b);
  const problem p(g, measured_cost{});
  schedule plan;
  plan.compute(op_id{0});
  plan.compute(op_id{1});
  const std::vector<std::int64_t> at{input_at, 0};
  cuda_executor run(launch_plan(g, p, plan.steps, {at, 768, 256}),
                    [&](const cuda_call& c) {
                      const int elements = 64 + (index(c.operation) == 1 ? surplus : 0);
                      put_all<><<<1, 32, 0, c.stream>>>(c.output<int>(0).data(), elements);
                    },
                    {.debug = debug, .regions = regions});
  for (int step = 0; step < steps; ++step) run.run(nullptr);
  throw_on_cuda_error(cudaDeviceSynchronize());
  std::vector<int> got(64);
  throw_on_cuda_error(cudaMemcpy(got.data(), run.output(b).data(), 256, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; ++i) CHECK(got[static_cast<std::size_t>(i)] == i);
}

}  // namespace remat::test
