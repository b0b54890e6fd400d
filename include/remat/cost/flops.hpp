// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"

namespace remat {

/// The time of an operation is its number of floating-point operations.
struct flops_cost {
  /// Returns the floating-point operations of operation `o`.
  template <profiled_graph G>
  [[nodiscard]] constexpr double time(const G& g, op_id o) const {
    return g.flops(o);
  }
};

}  // namespace remat
