// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"

namespace remat {

/// The time of an operation is a weighted sum: flops × `flops` + bytes accessed × `bytes`.
struct linear_cost {
  double flops = 1.0;  ///< time for a floating-point operation
  double bytes = 0.0;  ///< time for a byte of memory traffic

  /// Returns the time of operation `o`, in the unit of the weights.
  template <profiled_graph G>
  [[nodiscard]] constexpr double time(const G& g, op_id o) const {
    return flops * g.flops(o) + bytes * g.bytes_accessed(o);
  }
};

}  // namespace remat
