// SPDX-License-Identifier: BSL-1.0
#include <iostream>
#include <vector>

#include "remat/method/evict.hpp"
#include "remat/remat.hpp"

int main() {
  remat::training_graph graph("sixteen layers");  // of 1 MB each; a layer's backward needs what its forward read
  std::vector<remat::tensor_id> y{graph.add_tensor({.bytes = 1'000'000, .kind = remat::tensor_kind::input})};
  for (int layer = 0; layer < 16; ++layer) {
    y.push_back(graph.add_tensor({.bytes = 1'000'000}));
    graph.add_operation({.name = "forward", .inputs = {y[y.size() - 2]}, .outputs = {y.back()}});
  }
  for (remat::tensor_id gradient = y.back(); !y.empty(); y.pop_back()) {
    const remat::tensor_id next = graph.add_tensor({.bytes = 1'000'000});
    graph.add_operation({.name = "backward", .inputs = {y.back(), gradient}, .outputs = {next}});
    gradient = next;
    if (y.size() == 1) graph.add_final_output(next);
  }

  const remat::problem step(graph, remat::unit_cost{});  // another model: roofline_cost, measured_cost, a callable
  for (const int percent : {100, 75, 50, 35}) {
    const remat::solution s = remat::evict(step.with_budget(step.graph().baseline_peak * percent / 100));
    std::cout << percent << " % of the memory: " << remat::to_string(s.status) << ", peak " << s.peak_bytes
              << " bytes, time " << s.time << " instead of " << step.graph().baseline_time << '\n';
  }
}
