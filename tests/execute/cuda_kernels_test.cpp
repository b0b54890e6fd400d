// SPDX-License-Identifier: BSL-1.0
#include "remat/execute/cuda.cuh"

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/graph/training_graph.hpp"

using namespace remat;

namespace {

cudaError_t fails(const cuda_call&) { return cudaErrorInvalidConfiguration; }

struct counts {
  int* calls;
  void operator()(const cuda_call&) { ++*calls; }
};

}  // namespace

TEST_CASE("kernels return nothing or a cudaError_t") {
  const auto nothing = [](const cuda_call&) {};
  const auto code = [](const cuda_call&) { return cudaSuccess; };
  const auto number = [](const cuda_call&) { return 1; };
  const auto other = [](int) {};
  static_assert(cuda_kernels<decltype(nothing)>);
  static_assert(cuda_kernels<decltype(code)>);
  static_assert(!cuda_kernels<decltype(number)>);  // a status of another library would be dropped
  static_assert(!cuda_kernels<decltype(other)>);
  static_assert(cuda_kernels<cuda_kernel_table>);
  static_assert(cuda_kernels<kernel_table<cuda_call>>);
  static_assert(cuda_kernels<std::reference_wrapper<counts>>);
}

TEST_CASE("a table passes on the codes of its kernels, and names an operation without one") {
  training_graph g;
  for (int i = 0; i < 5; ++i) g.add_operation({.name = "o"});
  int called = 0;
  cuda_kernel_table kernels(g);
  CHECK(kernels.size() == 5);
  kernels[op_id{0}] = [&](const cuda_call&) { ++called; };
  kernels[op_id{1}] = [](const cuda_call&) { return cudaErrorInvalidValue; };
  kernels[op_id{2}] = fails;
  kernels[op_id{3}] = counts{&called};
  const auto run = [&](std::uint32_t o) {
    cuda_call c;
    c.operation = op_id{o};
    return kernels(c);
  };
  CHECK(run(0) == cudaSuccess);
  CHECK(called == 1);
  CHECK(run(1) == cudaErrorInvalidValue);
  CHECK(run(2) == cudaErrorInvalidConfiguration);
  CHECK(run(3) == cudaSuccess);
  CHECK(called == 2);
  CHECK_THROWS_WITH_AS(run(4), "operation 4 has no kernel in the table", bad_argument);
  CHECK_THROWS_AS(run(5), bad_argument);
  const cuda_kernel_table copy = kernels;
  cuda_call c;
  c.operation = op_id{0};
  CHECK(copy(c) == cudaSuccess);
  CHECK(called == 3);
  CHECK_FALSE(static_cast<bool>(std::as_const(kernels)[op_id{4}]));
}

TEST_CASE("an empty function or a null pointer is no kernel") {
  const std::function<void(const cuda_call&)> none;
  cudaError_t (*null)(const cuda_call&) = nullptr;
  CHECK_FALSE(static_cast<bool>(cuda_kernel(none)));
  CHECK_FALSE(static_cast<bool>(cuda_kernel(null)));
  CHECK_FALSE(static_cast<bool>(cuda_kernel()));
  CHECK(static_cast<bool>(cuda_kernel(std::function<void(const cuda_call&)>([](const cuda_call&) {}))));
  cuda_kernel_table table({cuda_kernel(), cuda_kernel(fails)});
  CHECK(table.size() == 2);
  CHECK(table[op_id{1}](cuda_call{}) == cudaErrorInvalidConfiguration);
}
