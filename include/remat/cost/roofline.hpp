// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>

#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"

namespace remat {

/// Seconds by the roofline: latency + max(flops / F, bytes accessed / B) \cite williams2009roofline.
///
/// The defaults are an A100's (156 TFLOP/s in TF32, 1.555 TB/s) with 4 µs for a launch.
struct roofline_cost {
  double flops = 156e12;        ///< F, floating-point operations a second
  double bandwidth = 1.555e12;  ///< B, bytes a second
  double latency = 4e-6;        ///< seconds for each operation

  /// Returns the time of operation `o`, in seconds.
  template <profiled_graph G>
  [[nodiscard]] constexpr double time(const G& g, op_id o) const {
    return latency +
           std::max(static_cast<double>(g.flops(o)) / flops, static_cast<double>(g.bytes_accessed(o)) / bandwidth);
  }
};

}  // namespace remat
