// SPDX-License-Identifier: BSL-1.0
#include <algorithm>
#include <cmath>
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

void forward(const host_call& c) {  // x, w → y = tanh(w x), for a number w
  const auto x = c.input<float>(0), w = c.input<float>(1);
  for (std::size_t i = 0; i < x.size(); ++i) c.output<float>(0)[i] = std::tanh(w[0] * x[i]);
}
void backward(const host_call& c) {  // x, w, y, grad(y) → grad(x), grad(w)
  const auto x = c.input<float>(0), w = c.input<float>(1), y = c.input<float>(2), gy = c.input<float>(3);
  const auto gx = c.output<float>(0), gw = c.output<float>(1);
  gw[0] = 0;
  for (std::size_t i = 0; i < x.size(); ++i) gw[0] += x[i] * (1 - y[i] * y[i]) * gy[i];
  for (std::size_t i = 0; i < gx.size(); ++i) gx[i] = w[0] * (1 - y[i] * y[i]) * gy[i];  // empty if not needed
}
void sum(const host_call& c) {  // y → the sum of all y; its gradient is 1 everywhere
  c.output<float>(0)[0] = std::accumulate(c.input<float>(0).begin(), c.input<float>(0).end(), 0.0F);
}
void ones(const host_call& c) { std::ranges::fill(c.output<float>(0), 1.0F); }

int main() {
  remat::step_builder<kernel> builder("twelve layers");
  const tensor_id x = builder.input("x", 4000), loss = builder.activation("loss", 4);
  tensor_id y = x;
  for (int layer = 0; layer < 12; ++layer) {
    const tensor_id in = y, w = builder.parameter("w", 4);
    y = builder.activation("y", 4000);
    const rule r{.inputs = {in, w, y, grad(y)}, .outputs = {grad(in), grad(w)}, .kernel = backward};
    builder.add({.name = "layer", .inputs = {in, w}, .outputs = {y}, .kernel = forward, .backward = {r}});
  }
  const rule r{.outputs = {grad(y)}, .kernel = ones};
  builder.add({.name = "sum", .inputs = {y}, .outputs = {loss}, .kernel = sum, .backward = {r}});
  const remat::built_step<kernel> step = builder.build(loss);

  const remat::problem problem(step.graph, remat::unit_cost{});
  const std::vector<float> data(1000, 1), weight{0.75F};
  for (const int percent : {100, 50}) {
    const remat::solution s = remat::evict(problem.with_budget(problem.graph().baseline_peak * percent / 100));
    const remat::launch_plan plan(step.graph, problem, s.plan.value());
    remat::host_executor run(plan, remat::kernel_table<host_call>(step.kernels));
    run.bind(x, std::as_bytes(std::span(data)));
    for (const tensor_id w : step.parameters) run.bind(w, std::as_bytes(std::span(weight)));
    run.run();
    const auto value = [&](tensor_id t) { return *reinterpret_cast<const float*>(run.output(t).data()); };
    std::cout << "peak " << s.peak_bytes << " bytes, " << s.statistics.recomputes << " operations run again: loss "
              << value(loss) << ", first weight's gradient " << value(*step.gradient_of(step.parameters[0])) << '\n';
  }
}
