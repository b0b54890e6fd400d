// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/problem/flat_graph.hpp"

namespace REMAT_NAMESPACE::detail {

/// The dependences between operations, seen from those that are moments. The graph must outlive the object.
class moment_relations {
 public:
  explicit moment_relations(const flat_graph& g) : graph_(g) {}

  static constexpr std::uint8_t later = 1, earlier = 2;
  /// The operations that depend on `moment`, marked `later`, and those on which it depends, marked `earlier`; itself
  /// both. O(graph) time.
  [[nodiscard]] std::vector<std::uint8_t> of(std::uint32_t moment) const {
    const flat_graph& g = graph_;
    std::vector<std::uint8_t> mask(g.num_operations, 0);
    mask[moment] = later | earlier;
    for (std::uint32_t o = moment; o < g.num_operations; ++o)
      if (mask[o] & later)
        for (const std::uint32_t t : g.outputs[o])
          for (const std::uint32_t reader : g.consumers[t]) mask[reader] |= later;
    for (std::uint32_t o = moment + 1; o-- > 0;)
      if (mask[o] & earlier)
        for (const std::uint32_t t : g.inputs[o])
          for (const std::uint32_t p : g.producers[t]) mask[p] |= earlier;
    return mask;
  }
  /// True if `moment` reads or writes tensor `t`.
  [[nodiscard]] bool is_own(std::uint32_t moment, std::uint32_t t) const {
    for (const auto* lists : {&graph_.inputs, &graph_.outputs})
      for (const std::uint32_t x : (*lists)[moment])
        if (x == t) return true;
    return false;
  }

 private:
  const flat_graph& graph_;
};

}  // namespace REMAT_NAMESPACE::detail
