// SPDX-License-Identifier: BSL-1.0
#include <iostream>
#include <vector>

#include "remat/method/evict.hpp"
#include "remat/remat.hpp"

int main() {
  constexpr std::int64_t bytes = 1'000'000;  // of each tensor
  constexpr std::size_t layers = 16;
  remat::training_graph graph("sixteen layers");
  std::vector<remat::tensor_id> inputs{graph.add_tensor({.bytes = bytes, .kind = remat::tensor_kind::input})}, outputs;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    outputs.push_back(graph.add_tensor({.bytes = bytes}));
    graph.add_operation({.name = "forward", .inputs = {inputs.back()}, .outputs = {outputs.back()}});
    inputs.push_back(outputs.back());  // of the next layer, or of the loss
  }
  remat::tensor_id gradient = graph.add_tensor({.bytes = bytes});
  graph.add_operation({.name = "loss", .inputs = {inputs.back()}, .outputs = {gradient}});
  for (std::size_t layer = layers; layer-- > 0;) {  // a layer's backward needs what its forward read
    const remat::tensor_id next = graph.add_tensor({.bytes = bytes});
    graph.add_operation({.name = "backward", .inputs = {inputs[layer], gradient}, .outputs = {next}});
    gradient = next;
  }
  graph.add_final_output(gradient);

  const remat::problem step(graph, remat::unit_cost{});  // another model: roofline_cost, measured_cost, a callable
  for (const int percent : {100, 75, 50, 35}) {
    const remat::solution s = remat::evict(step.with_budget(step.graph().baseline_peak * percent / 100));
    std::cout << percent << " % of the memory: " << remat::to_string(s.status) << ", peak " << s.peak_bytes
              << " bytes, time " << s.time << " instead of " << step.graph().baseline_time << '\n';
  }
}
