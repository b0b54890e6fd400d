// SPDX-License-Identifier: BSL-1.0
#include <cstdio>

#include "remat/execute/cuda.cuh"
#include "remat/method/evict.hpp"
#include "remat/remat.hpp"

__global__ void layer(const float* x, const float* dy, float* out) {  // forward: sin x; backward: cos x · dy
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = dy == nullptr ? sinf(x[i]) : cosf(x[i]) * dy[i];
}

int main() {
  constexpr unsigned blocks = 1024, threads = 256, bytes = blocks * threads * sizeof(float);
  remat::training_graph graph("sixteen layers");  // a layer's backward needs what its forward read
  std::vector y{graph.add_tensor({.name = "x", .bytes = bytes, .kind = remat::tensor_kind::input})};
  for (int i = 0; i < 16; ++i) {
    y.push_back(graph.add_tensor({.name = "y", .bytes = bytes}));
    graph.add_operation({.name = "forward", .inputs = {y[y.size() - 2]}, .outputs = {y.back()}});
  }
  for (std::size_t i = 16; i-- > 0;) {  // the gradient of half the sum of all squares
    y.push_back(graph.add_tensor({.name = "dy", .bytes = bytes}));
    graph.add_operation({.name = "backward", .inputs = {y[i], y[y.size() - 2]}, .outputs = {y.back()}});
  }
  graph.add_final_output(y.back());
  const remat::problem step(graph, remat::unit_cost{});
  const remat::solution half = remat::evict(step.with_budget(step.graph().baseline_peak / 2));
  remat::cuda_executor run(remat::launch_plan(graph, step, half.plan.value()), [](const remat::cuda_call& c) {
    const float* const dy = c.inputs.size() == 2 ? c.input<float>(1).data() : nullptr;
    layer<<<blocks, threads, 0, c.stream>>>(c.input<float>(0).data(), dy, c.output<float>(0).data());
  });
  const remat::cuda_memory batch(bytes);
  cudaMemset(batch.data(), 0x3f, bytes);  // each element is 0.747
  run.bind(y[0], batch.bytes());
  run.run(nullptr);  // on the default stream
  float dx = 0;
  cudaMemcpy(&dx, run.output(y.back()).data(), sizeof dx, cudaMemcpyDeviceToHost);
  std::printf("%zu launches in an arena of %zu bytes; dx[0] = %.4f\n", run.plan().size(), run.arena().size(), dx);
}
