// SPDX-License-Identifier: BSL-1.0
// What the device finds out after the launch: in a program of its own, whose CUDA context is lost by it.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/execute/cuda.cuh"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"

using namespace remat;

namespace {

template <int = 0>
__global__ void put(int* at) {
  *at = 1;
}

}  // namespace

TEST_CASE("in debug mode, an illegal address is reported with the operation whose kernel used it") {
  training_graph g;
  const tensor_id t = g.add_tensor({.name = "t", .bytes = 256});
  const tensor_id u = g.add_tensor({.name = "u", .bytes = 256});
  g.add_operation({.name = "sound", .outputs = {t}, .seconds = 1});
  g.add_operation({.name = "broken", .inputs = {t}, .outputs = {u}, .seconds = 1});
  g.add_final_output(u);
  const problem p(g, measured_cost{});
  schedule plan;
  plan.compute(op_id{0});
  plan.compute(op_id{1});
  const std::vector<std::int64_t> at{0, 256};
  cuda_executor run(launch_plan(g, p, plan.steps, {at, 512, 256}),
                    [&](const cuda_call& c) {
                      put<><<<1, 1, 0, c.stream>>>(index(c.operation) == 1 ? nullptr : c.output<int>(0).data());
                    },
                    {.debug = cuda_debug::synchronize});
  try {
    run.run(nullptr);
    FAIL("the error was not seen");
  } catch (const execution_error& e) {
    CHECK(index(e.operation()) == 1);
    CHECK(std::string(e.what()).find("operation 1 (broken) in step 1") == 0);
    try {
      std::rethrow_if_nested(e);
    } catch (const cuda_error& inner) {
      CHECK(inner.code() == cudaErrorIllegalAddress);
    }
  }
  // The context is lost: that, too, is an exception and no crash, here and in the destructors.
  CHECK_THROWS_AS(run.run(nullptr), error);
}
