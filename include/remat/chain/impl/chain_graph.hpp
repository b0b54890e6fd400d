// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/chain/chain_graph.hpp"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE training_graph chain_graph(const chain& c) {
  training_graph g(c.name());
  const std::size_t n = c.length();
  std::vector<tensor_id> x(n + 1), gradient(n + 1);
  std::vector<std::vector<tensor_id>> saved(n + 1);  // what each stage's forward makes
  x[0] = g.add_tensor({.name = "x0", .bytes = c.input_bytes(), .kind = tensor_kind::input});
  for (std::size_t i = 1; i <= n; ++i) {
    const chain_stage& s = c.stage(i);
    const std::string number = std::to_string(i);
    x[i] = g.add_tensor({.name = "x" + number, .bytes = s.output_bytes});
    saved[i] = {x[i]};
    if (s.saved_bytes > s.output_bytes)
      saved[i].push_back(g.add_tensor(
          {.name = "saved" + number, .bytes = s.saved_bytes - s.output_bytes, .kind = tensor_kind::saved}));
    g.add_operation({.name = "forward" + number,
                     .phase = op_phase::forward,
                     .inputs = {x[i - 1]},
                     .outputs = saved[i],
                     .seconds = s.forward_time,
                     .workspace = s.forward_overhead_bytes});
  }
  for (std::size_t i = 0; i <= n; ++i)
    gradient[i] = g.add_tensor(
        {.name = "gradient" + std::to_string(i), .bytes = c.activation_bytes(i), .kind = tensor_kind::gradient});
  g.add_operation(
      {.name = "loss", .phase = op_phase::loss, .inputs = {x[n]}, .outputs = {gradient[n]}, .seconds = 0.0});
  for (std::size_t i = n; i >= 1; --i) {
    const chain_stage& s = c.stage(i);
    std::vector<tensor_id> inputs = saved[i];
    inputs.push_back(x[i - 1]);
    inputs.push_back(gradient[i]);
    g.add_operation({.name = "backward" + std::to_string(i),
                     .phase = op_phase::backward,
                     .inputs = std::move(inputs),
                     .outputs = {gradient[i - 1]},
                     .seconds = s.backward_time,
                     .workspace = s.backward_overhead_bytes});
  }
  g.add_final_output(gradient[0]);
  return g;
}

}  // namespace REMAT_NAMESPACE
