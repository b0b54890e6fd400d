// SPDX-License-Identifier: BSL-1.0
// NVTX regions on a device. Without a tool they do nothing. Under `compute-sanitizer --tool memcheck --nvtx yes` the
// planted overrun must be reported, which may cost the CUDA context: so it is the last test of a program of its own,
// and tests/gpu.sh runs it alone.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/cuda.cuh"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"

using namespace remat;

namespace {

template <int = 0>
__global__ void put_all(int* at, int elements) {
  for (int i = static_cast<int>(threadIdx.x); i < elements; i += static_cast<int>(blockDim.x)) at[i] = i;
}

/// Two operations whose tensors have free memory between them: b at byte 0, a at byte 512.
void run_with_regions(int surplus) {
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
  const std::vector<std::int64_t> at{512, 0};
  cuda_executor run(launch_plan(g, p, plan.steps, {at, 768, 256}),
                    [&](const cuda_call& c) {
                      const int elements = 64 + (index(c.operation) == 1 ? surplus : 0);
                      put_all<><<<1, 32, 0, c.stream>>>(c.output<int>(0).data(), elements);
                    },
                    {.debug = cuda_debug::synchronize, .regions = true});
  for (int step = 0; step < 2; ++step) run.run(nullptr);
  std::vector<int> got(64);
  throw_on_cuda_error(cudaMemcpy(got.data(), run.output(b).data(), 256, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; ++i) CHECK(got[static_cast<std::size_t>(i)] == i);
}

}  // namespace

TEST_CASE("steps that keep to their regions run, with and without a tool") { run_with_regions(0); }

TEST_CASE("planted overrun: a step whose kernel leaves its region") {
  try {
    run_with_regions(1);  // without a tool, nobody sees it
  } catch (const execution_error& e) {
    CHECK(index(e.operation()) == 1);  // the tool has stopped the kernel
  } catch (const error&) {
    // The tool has ended the context behind the kernel.
  }
}
