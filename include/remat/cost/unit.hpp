// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"

namespace remat {

/// Every operation takes one unit of time: the time of a schedule is its number of computes.
struct unit_cost {
  /// Returns 1 for every operation.
  template <data_flow_graph G>
  [[nodiscard]] constexpr double time(const G&, op_id) const noexcept {
    return 1.0;
  }
};

}  // namespace remat
