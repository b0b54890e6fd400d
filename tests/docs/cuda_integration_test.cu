// SPDX-License-Identifier: BSL-1.0
// The plain CUDA of docs/cuda-integration.md: the blocks between [page] and [end] stand there word for word, which the
// test docs.cuda_integration verifies. This one runs them.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "remat/execute/cuda.cuh"
#include "remat/method/evict.hpp"
#include "remat/remat.hpp"

namespace {

// [page]
template <class T>
__global__ void scale(const T* x, T factor, T* y, std::size_t n, bool adds) {  // y = factor · x, or y += factor · x
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) y[i] = adds ? y[i] + factor * x[i] : factor * x[i];
}
// [end]

// [page]
template <class T>
__global__ void keep_some(const T* x, T* y, std::size_t n, const std::uint64_t* step_seed, remat::op_id operation) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint64_t key = remat::cuda_kernel_seed(*step_seed, operation);
  if (i < n) y[i] = remat::cuda_kernel_seed(key, remat::op_id{i}) % 10 != 0 ? x[i] : T{0};
}
// [end]

constexpr std::size_t n = 1000;

/// x → y = keep_some(x); z = 2 y, then z += 3 y
struct example {
  remat::training_graph graph;
  remat::tensor_id x{}, y{}, z{};
  remat::op_id drop{}, twice{}, thrice{};

  example() {
    constexpr std::int64_t bytes = n * sizeof(float);
    x = graph.add_tensor({.name = "x", .bytes = bytes, .kind = remat::tensor_kind::input});
    y = graph.add_tensor({.name = "y", .bytes = bytes});
    z = graph.add_tensor({.name = "z", .bytes = bytes});
    drop = graph.add_operation({.name = "drop", .inputs = {x}, .outputs = {y}});
    twice = graph.add_operation({.name = "twice", .inputs = {y}, .outputs = {z}, .workspace = 256});
    thrice = graph.add_operation({.name = "thrice", .inputs = {y}, .outputs = {z}});
    graph.add_final_output(z);
  }
};

std::vector<float> fetched(std::span<const std::byte> device) {
  std::vector<float> out(device.size() / sizeof(float));
  remat::throw_on_cuda_error(cudaMemcpy(out.data(), device.data(), device.size(), cudaMemcpyDeviceToHost));
  return out;
}

/// 5 x, or 0 for the elements that the seed of the step leaves out.
std::vector<float> expected(const std::vector<float>& x, std::uint64_t step, remat::op_id operation) {
  const std::uint64_t key = remat::kernel_seed(step, operation);
  std::vector<float> out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    out[i] = remat::kernel_seed(key, remat::op_id{i}) % 10 != 0 ? 5 * x[i] : 0.0F;
  return out;
}

}  // namespace

TEST_CASE("the blocks of docs/cuda-integration.md do what the page says") {
  const example e;
  const auto& [graph, x, y, z, drop, twice, thrice] = e;
  const remat::problem problem(graph, remat::unit_cost{});
  const remat::schedule plan = remat::evict(problem).plan.value();
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 64) + 1;
  const remat::cuda_stream own = remat::make_cuda_stream();
  const cudaStream_t stream = own.get();

  // [page]
  const remat::cuda_seed seed;  // eight bytes on the device, which the executor writes before each training step
  remat::kernel_table<remat::cuda_call> kernels(graph);
  kernels[drop] = [&seed](const remat::cuda_call& c) {
    const auto from = c.input<float>(0);
    const auto to = c.output<float>(0);
    keep_some<<<4, 256, 0, c.stream>>>(from.data(), to.data(), to.size(), seed.get(), c.operation);
  };
  kernels[twice] = kernels[thrice] = [thrice = thrice](const remat::cuda_call& c) {
    const float factor = c.operation == thrice ? 3 : 2;
    scale<<<4, 256, 0, c.stream>>>(c.input<float>(0).data(), factor, c.output<float>(0).data(),
                                   c.output<float>(0).size(), c.adds[0] != 0);
  };
  // [end]

  // [page]
  // Not by cudaMemcpy: it may return before the device has the bytes.
  const remat::cuda_memory batch(n * sizeof(float));
  remat::throw_on_cuda_error(
      cudaMemcpyAsync(batch.data(), values.data(), batch.size(), cudaMemcpyHostToDevice, stream));
  // [end]

  // [page]
  remat::launch_plan launches(graph, problem, plan, {.streams = 2});
  const auto arena_bytes = static_cast<std::size_t>(launches.arena_bytes());
  remat::cuda_executor run(std::move(launches), kernels,
                           {.arena = remat::cuda_memory(arena_bytes, stream), .seed = &seed});
  run.bind(x, batch.bytes());
  run.run(stream, 7);  // step 7 is enqueued; it begins behind the work that the stream holds
  // [end]
  remat::throw_on_cuda_error(cudaStreamSynchronize(stream));
  CHECK(fetched(run.output(z)) == expected(values, 7, drop));

  // [page]
  const remat::cuda_captured_step captured = run.capture();  // behind one eager run, which has loaded every kernel
  for (std::uint64_t step = 8; step < 100; ++step) captured.launch(stream, step);
  // [end]
  remat::throw_on_cuda_error(cudaStreamSynchronize(stream));
  CHECK(fetched(run.output(z)) == expected(values, 99, drop));
}
