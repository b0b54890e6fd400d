// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"

namespace remat {

/// The time of an operation is its measured time in the graph, in seconds.
struct measured_cost {
  /// Returns the measured time of operation `o`, in seconds.
  template <measured_graph G>
  [[nodiscard]] constexpr double time(const G& g, op_id o) const {
    return g.measured_seconds(o);
  }
};

}  // namespace remat
