// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat {

/// The listed order with nothing recomputed, each tensor freed right after its last use: the schedule whose peak and
/// time are `flat_graph::baseline_peak` and `flat_graph::baseline_time`. All operations run, also those that no final
/// output and no effect needs. O(operations + reads and writes).
[[nodiscard]] schedule listed_order(const problem& p);

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/schedule/impl/baseline.hpp"
#endif
