// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "remat/order.hpp"
#include "remat/problem/flat_graph.hpp"

namespace remat::test {

/// The needed operations of a training step as a graph to order.
struct flat_order {
  std::vector<std::uint32_t> operations{};  ///< number → operation of the step
  std::vector<order_tensor> tensors{};
  std::vector<std::vector<std::uint32_t>> readers{};
  std::vector<std::int64_t> workspace{};

  explicit flat_order(const flat_graph& g) : readers(g.num_tensors) {
    std::vector<order_tensor> all(g.num_tensors);
    for (std::uint32_t t = 0; t < g.num_tensors; ++t) {
      all[t].bytes = g.bytes[t];
      all[t].stays = g.final_output[t] != 0;
    }
    for (std::uint32_t o = 0; o < g.num_operations; ++o) {
      if (!g.needed[o]) continue;
      const auto me = static_cast<std::uint32_t>(operations.size());
      operations.push_back(o);
      workspace.push_back(g.workspace[o]);
      for (const std::uint32_t t : g.inputs[o]) readers[t].push_back(me);
      for (const std::uint32_t t : g.outputs[o]) all[t].producer = me;
    }
    for (std::uint32_t t = 0; t < g.num_tensors; ++t) {
      all[t].readers = readers[t];
      if (all[t].producer != order_none) tensors.push_back(all[t]);
    }
  }

  flat_order(const flat_order&) = delete;  // the tensors refer to its readers
  flat_order& operator=(const flat_order&) = delete;

  [[nodiscard]] order_graph view() const { return {static_cast<std::uint32_t>(operations.size()), tensors, workspace}; }
};

}  // namespace remat::test
