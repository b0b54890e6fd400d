// SPDX-License-Identifier: BSL-1.0
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <span>
#include <vector>

#include "remat/execute.hpp"
#include "remat/method/evict.hpp"
#include "remat/remat.hpp"

using remat::grad, remat::host_call, remat::tensor_id;
using kernel = std::function<void(const host_call&)>;

void forward(const host_call& c) {  // x, w → y = w x, for a number w
  const auto x = c.input<float>(0), w = c.input<float>(1);
  for (std::size_t i = 0; i < x.size(); ++i) c.output<float>(0)[i] = w[0] * x[i];
}
void backward_x(const host_call& c) {  // w, grad(y) → grad(x)
  const auto w = c.input<float>(0), g = c.input<float>(1);
  for (std::size_t i = 0; i < g.size(); ++i) c.output<float>(0)[i] = w[0] * g[i];
}
void backward_w(const host_call& c) {  // x, grad(y) → grad(w)
  const auto x = c.input<float>(0), g = c.input<float>(1);
  float sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * g[i];
  float& out = c.output<float>(0)[0];
  out = c.adds[0] != 0 ? out + sum : sum;  // the buffer may hold the sum of earlier micro-batches
}
void total(const host_call& c) {  // y → the sum of all y²
  float sum = 0;
  for (const float y : c.input<float>(0)) sum += y * y;
  c.output<float>(0)[0] = sum;
}
void total_backward(const host_call& c) {  // y → grad(y)
  const auto y = c.input<float>(0);
  for (std::size_t i = 0; i < y.size(); ++i) c.output<float>(0)[i] = 2 * y[i];
}

int main() {
  constexpr std::size_t size = 256, batches = 4;
  remat::step_builder<kernel> builder("eight layers");
  const tensor_id x = builder.input("x", size * 4);
  tensor_id h = x;
  std::vector<tensor_id> weights;
  for (int layer = 0; layer < 8; ++layer) {
    const tensor_id w = builder.parameter("w", 4), y = builder.activation("y", size * 4);
    builder.add({.name = "layer",
                 .inputs = {h, w},
                 .outputs = {y},
                 .kernel = forward,
                 .backward = {{.inputs = {w, grad(y)}, .outputs = {grad(h)}, .kernel = backward_x},
                              {.inputs = {h, grad(y)}, .outputs = {grad(w)}, .kernel = backward_w}}});
    weights.push_back(w);
    h = y;
  }
  const tensor_id loss = builder.activation("loss", 4);
  builder.add({.name = "total",
               .inputs = {h},
               .outputs = {loss},
               .kernel = total,
               .backward = {{.inputs = {h}, .outputs = {grad(h)}, .kernel = total_backward}}});
  const remat::built_step<kernel> step = builder.build(loss);

  remat::launch_options options{.bound_outputs = {loss}};
  for (const tensor_id w : weights) options.accumulated_outputs.push_back(*step.gradient_of(w));
  const remat::problem problem =
      remat::problem(step.graph, remat::unit_cost{}).producing_once(options.accumulated_outputs);
  const remat::solution s = remat::evict(problem.with_budget(problem.graph().baseline_peak / 2));
  if (!s.plan) return 1;
  remat::host_executor run(remat::launch_plan(step.graph, problem, *s.plan, options),
                           remat::kernel_table<host_call>(step.kernels));

  std::vector<float> gradients(weights.size(), 0);  // zero before the first micro-batch
  std::vector<float> losses(batches), data(batches * size);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i % 5);
  const float weight = 1;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    run.bind(weights[i], std::as_bytes(std::span(&weight, 1)));
    run.bind_output(options.accumulated_outputs[i], std::as_writable_bytes(std::span(&gradients[i], 1)));
  }
  for (std::size_t batch = 0; batch < batches; ++batch) {
    run.bind(x, std::as_bytes(std::span(data).subspan(batch * size, size)));
    run.bind_output(loss, std::as_writable_bytes(std::span(&losses[batch], 1)));
    run.run(batch);
    std::cout << "loss " << losses[batch] << ", gradient of the first weight so far " << gradients[0] << '\n';
  }
}
