// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <iostream>
#include <numeric>
#include <span>
#include <vector>

#include "remat/execute.hpp"
#include "remat/method/evict.hpp"
#include "remat/remat.hpp"

using remat::grad, remat::host_call, remat::tensor_id;
using kernel = remat::kernel_table<host_call>::kernel;  // std::function<void(const host_call&)>
using rule = remat::backward_operation<kernel>;

void multiply(const host_call& c) {  // x, w → w x, for a number w
  const auto w = c.input<float>(1)[0];
  std::ranges::transform(c.input<float>(0), c.output<float>(0).begin(), [w](float x) { return w * x; });
}
void backward_w(const host_call& c) {  // x, grad(y) → grad(w)
  const auto x = c.input<float>(0), g = c.input<float>(1);
  float& out = c.output<float>(0)[0];  // may hold the sum of earlier micro-batches
  out = std::inner_product(x.begin(), x.end(), g.begin(), c.adds[0] != 0 ? out : 0.0F);
}
void sum(const host_call& c) {  // y → the sum of all y; its gradient is 1 everywhere
  c.output<float>(0)[0] = std::accumulate(c.input<float>(0).begin(), c.input<float>(0).end(), 0.0F);
}
void ones(const host_call& c) { std::ranges::fill(c.output<float>(0), 1.0F); }

int main() {
  remat::step_builder<kernel> builder("eight layers");
  const tensor_id x = builder.input("x", 1024), loss = builder.activation("loss", 4);
  tensor_id y = x;
  for (int layer = 0; layer < 8; ++layer) {
    const tensor_id in = y, w = builder.parameter("w", 4);
    y = builder.activation("y", 1024);
    const rule for_x{.inputs = {grad(y), w}, .outputs = {grad(in)}, .kernel = multiply};
    const rule for_w{.inputs = {in, grad(y)}, .outputs = {grad(w)}, .kernel = backward_w};
    builder.add({.name = "layer", .inputs = {in, w}, .outputs = {y}, .kernel = multiply, .backward = {for_x, for_w}});
  }
  const rule for_y{.outputs = {grad(y)}, .kernel = ones};
  builder.add({.name = "sum", .inputs = {y}, .outputs = {loss}, .kernel = sum, .backward = {for_y}});
  const remat::built_step<kernel> step = builder.build(loss);
  remat::launch_options options;
  for (const tensor_id w : step.parameters) options.accumulated_outputs.push_back(*step.gradient_of(w));
  const auto problem = remat::problem(step.graph, remat::unit_cost{}).producing_once(options.accumulated_outputs);
  const remat::solution s = remat::evict(problem.with_budget(problem.graph().baseline_peak / 2));
  const remat::launch_plan plan(step.graph, problem, s.plan.value(), options);
  remat::host_executor run(plan, remat::kernel_table<host_call>(step.kernels));
  std::vector<float> gradients(8, 0), weight{1};  // gradients are 0 before the first micro-batch
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    run.bind(step.parameters[i], std::as_bytes(std::span(weight)));
    run.bind_output(options.accumulated_outputs[i], std::as_writable_bytes(std::span(&gradients[i], 1)));
  }
  for (const auto& micro_batch : {std::vector<float>(256, 1), std::vector<float>(256, 2), std::vector<float>(256, 4)}) {
    run.bind(x, std::as_bytes(std::span(micro_batch)));
    run.run();
    std::cout << "gradient of the first weight so far: " << gradients[0] << '\n';
  }
}
