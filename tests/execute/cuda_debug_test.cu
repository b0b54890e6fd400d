// SPDX-License-Identifier: BSL-1.0
// The write check on a device: a planted kernel writes one element too many.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <utility>
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

/// Two operations in an arena of three tensors; the second one's output lies in front, at byte 0.
std::string message_of_run(std::int64_t input_at, int surplus, cuda_debug debug) {
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
                    {.debug = debug});
  try {
    run.run(nullptr);
    throw_on_cuda_error(cudaDeviceSynchronize());
  } catch (const execution_error& e) {
    CHECK(index(e.operation()) == 1);
    return e.what();
  }
  std::vector<int> got(64);
  throw_on_cuda_error(cudaMemcpy(got.data(), run.output(b).data(), 256, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; ++i) CHECK(got[static_cast<std::size_t>(i)] == i);
  return "";
}

}  // namespace

TEST_CASE("the write check lets a sound step pass") {
  for (const std::int64_t input_at : {256, 512}) CHECK(message_of_run(input_at, 0, cuda_debug::check_writes).empty());
}

TEST_CASE("the write check names an overrun into an input, and one into free memory") {
  const std::string named = "operation 1 (second) in step 1";
  const std::string what =
      "a kernel has written to byte 256 of the arena, which is neither its output nor its workspace";
  for (const auto& [input_at, where] :
       {std::pair{std::int64_t{256}, "it belongs to input tensor 0 (a)"},
        std::pair{std::int64_t{512}, "1 bytes behind the end of output tensor 1 (b)"}}) {
    const std::string said = message_of_run(input_at, 1, cuda_debug::check_writes);
    CHECK(said.find(named) == 0);
    CHECK_MESSAGE(said.find(what) != std::string::npos, said);
    CHECK_MESSAGE(said.find(where) != std::string::npos, said);
  }
}

TEST_CASE("without the write check, nobody sees that overrun") {
  CHECK(message_of_run(512, 1, cuda_debug::synchronize).empty());
}
