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
    const remat::tensor_id next = graph.add_tensor({.name = "y", .bytes = bytes});
    graph.add_operation({.name = "forward", .inputs = {y.back()}, .outputs = {next}});
    y.push_back(next);
  }
  remat::tensor_id gradient = y.back();  // of half the sum of all squares
  for (std::size_t i = 16; i-- > 0;) {
    const remat::tensor_id next = graph.add_tensor({.name = "dy", .bytes = bytes});
    graph.add_operation({.name = "backward", .inputs = {y[i], gradient}, .outputs = {next}});
    gradient = next;
  }
  graph.add_final_output(gradient);
  const remat::problem step(graph, remat::unit_cost{});
  const remat::solution half = remat::evict(step.with_budget(step.graph().baseline_peak / 2));
  remat::cuda_executor run(remat::launch_plan(graph, step, half.plan.value()), [](const remat::cuda_call& c) {
    const float* const dy = c.inputs.size() == 2 ? c.input<float>(1).data() : nullptr;
    layer<<<blocks, threads, 0, c.stream>>>(c.input<float>(0).data(), dy, c.output<float>(0).data());
  });
  const remat::cuda_memory batch(bytes);
  remat::throw_on_cuda_error(cudaMemset(batch.data(), 0x3f, bytes));  // each element is 0.747
  run.bind(y[0], batch.bytes());
  run.run(nullptr);  // on the default stream
  float dx = 0;
  remat::throw_on_cuda_error(cudaMemcpy(&dx, run.output(gradient).data(), sizeof dx, cudaMemcpyDeviceToHost));
  std::printf("%zu launches in an arena of %zu bytes; dx[0] = %.4f\n", run.plan().size(), run.arena().size(), dx);
}
