// SPDX-License-Identifier: BSL-1.0
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iomanip>
#include <iostream>
#include <span>
#include <vector>

#include "remat/execute.hpp"
#include "remat/method/evict.hpp"
#include "remat/remat.hpp"

using remat::grad, remat::host_call, remat::tensor_id;
using kernel = std::function<void(const host_call&)>;

// y = tanh(w x), for a number w
void forward(const host_call& c) {
  const auto x = c.input<float>(0), w = c.input<float>(1);
  const auto y = c.output<float>(0);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::tanh(w[0] * x[i]);
}
void backward_x(const host_call& c) {  // w, y, grad(y) → grad(x)
  const auto w = c.input<float>(0), y = c.input<float>(1), g = c.input<float>(2);
  const auto gx = c.output<float>(0);
  for (std::size_t i = 0; i < y.size(); ++i) gx[i] = w[0] * (1 - y[i] * y[i]) * g[i];
}
void backward_w(const host_call& c) {  // x, y, grad(y) → grad(w)
  const auto x = c.input<float>(0), y = c.input<float>(1), g = c.input<float>(2);
  float sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += x[i] * (1 - y[i] * y[i]) * g[i];
  c.output<float>(0)[0] = sum;
}
// the mean of y²
void square(const host_call& c) {
  float sum = 0;
  for (const float y : c.input<float>(0)) sum += y * y;
  c.output<float>(0)[0] = sum / static_cast<float>(c.input<float>(0).size());
}
void square_backward(const host_call& c) {  // y → grad(y)
  const auto y = c.input<float>(0);
  for (std::size_t i = 0; i < y.size(); ++i) c.output<float>(0)[i] = 2 * y[i] / static_cast<float>(y.size());
}

int main() {
  constexpr std::int64_t size = 1000, bytes = size * 4;
  remat::step_builder<kernel> builder("twelve layers");
  const tensor_id x = builder.input("x", bytes);
  tensor_id h = x;
  std::vector<tensor_id> weights;
  for (int layer = 0; layer < 12; ++layer) {
    const tensor_id w = builder.parameter("w", 4), y = builder.activation("y", bytes);
    builder.add({.name = "layer",
                 .inputs = {h, w},
                 .outputs = {y},
                 .kernel = forward,
                 .backward = {{.inputs = {w, y, grad(y)}, .outputs = {grad(h)}, .kernel = backward_x},
                              {.inputs = {h, y, grad(y)}, .outputs = {grad(w)}, .kernel = backward_w}}});
    weights.push_back(w);
    h = y;
  }
  const tensor_id loss = builder.activation("loss", 4);
  builder.add({.name = "square",
               .inputs = {h},
               .outputs = {loss},
               .kernel = square,
               .backward = {{.inputs = {h}, .outputs = {grad(h)}, .kernel = square_backward}}});
  const remat::built_step<kernel> step = builder.build(loss);

  const remat::problem problem(step.graph, remat::unit_cost{});
  std::vector<float> data(size);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = std::sin(static_cast<float>(i));
  const std::array<float, 1> weight{1.25F};
  for (const int percent : {100, 50}) {
    const remat::solution s = remat::evict(problem.with_budget(problem.graph().baseline_peak * percent / 100));
    if (!s.plan) return 1;
    remat::host_executor run(remat::launch_plan(step.graph, problem, *s.plan),
                             remat::kernel_table<host_call>(step.kernels));
    run.bind(x, std::as_bytes(std::span(data)));
    for (const tensor_id w : weights) run.bind(w, std::as_bytes(std::span(weight)));
    run.run();
    const auto value = [&](tensor_id t) { return *reinterpret_cast<const float*>(run.output(t).data()); };
    std::cout << std::fixed << std::setprecision(4) << "peak " << s.peak_bytes << " bytes, " << s.statistics.recomputes
              << " operations run again: loss " << value(loss) << ", gradient of the first weight "
              << value(*step.gradient_of(weights.front())) << '\n';
  }
}
