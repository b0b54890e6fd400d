// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"

namespace remat::test {

/// A stack of equal blocks with a residual connection around each, as in a decoder: ten forward operations a block, and
/// as many backward ones, which read the forward tensors and add to the gradient of the residual. 21 · blocks + 1
/// operations. `seed` varies sizes and times from block to block a little; 0: all blocks are equal.
[[nodiscard]] inline problem deep_stack(std::uint32_t blocks, std::uint64_t seed = 0) {
  constexpr std::uint32_t in_block = 10;
  detail::random_source random(seed);
  const auto vary = [&](std::int64_t bytes) {
    return seed == 0 ? bytes : bytes - bytes / 8 + random.below(static_cast<std::uint64_t>(bytes / 4));
  };
  training_graph g("deep stack of " + std::to_string(blocks));
  const tensor_id input = g.add_tensor({.bytes = 1 << 20, .kind = tensor_kind::input});
  std::vector<tensor_id> values{input};  // of block b: values[b · in_block + 1 …]; the last one is the residual
  for (std::uint32_t b = 0; b < blocks; ++b) {
    const tensor_id residual = values.back();
    for (std::uint32_t i = 0; i < in_block; ++i) {
      // Two operations widen the tensor fourfold, as a feed-forward layer does.
      const std::int64_t bytes = vary(i == 5 || i == 6 ? 4 << 20 : 1 << 20);
      std::vector<tensor_id> reads{values.back()};
      if (i == 4 || i == in_block - 1) reads.push_back(i == 4 ? residual : values[values.size() - 5]);
      values.push_back(g.add_tensor({.bytes = bytes}));
      g.add_operation({.name = "forward " + std::to_string(i),
                       .phase = op_phase::forward,
                       .inputs = std::move(reads),
                       .outputs = {values.back()},
                       .seconds = (i % 3 == 0 ? 4e-3 : 1e-4) * (seed == 0 ? 1 : 0.9 + 0.2 * random.uniform()),
                       .workspace = i == 2 ? 1 << 18 : 0});
    }
  }
  const tensor_id loss = g.add_tensor({.bytes = 4});
  g.add_operation(
      {.name = "loss", .phase = op_phase::loss, .inputs = {values.back()}, .outputs = {loss}, .seconds = 1e-4});
  g.add_final_output(loss);
  tensor_id gradient = loss;
  for (std::uint32_t b = blocks; b-- > 0;)
    for (std::uint32_t i = in_block; i-- > 0;) {
      const std::size_t at = std::size_t{b} * in_block + i;  // of what the forward operation read
      const tensor_id next =
          g.add_tensor({.bytes = vary(i == 6 || i == 7 ? 4 << 20 : 1 << 20), .kind = tensor_kind::gradient});
      g.add_operation({.name = "backward " + std::to_string(i),
                       .phase = op_phase::backward,
                       .inputs = {gradient, values[at], values[at + 1]},
                       .outputs = {next},
                       .seconds = (i % 3 == 0 ? 8e-3 : 2e-4) * (seed == 0 ? 1 : 0.9 + 0.2 * random.uniform())});
      gradient = next;
      if (i == 0) {
        const tensor_id weight = g.add_tensor({.bytes = 1 << 16, .kind = tensor_kind::gradient});
        g.add_operation({.name = "weight gradient",
                         .phase = op_phase::backward,
                         .inputs = {gradient, values[at]},
                         .outputs = {weight},
                         .seconds = 1e-3});
        g.add_final_output(weight);
      }
    }
  g.add_final_output(gradient);
  return problem(g, measured_cost{});
}

}  // namespace remat::test
