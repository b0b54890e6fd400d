// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include "remat/bound/least_memory.hpp"
#include "remat/problem/problem.hpp"

namespace remat::test {

/// The problem within its largest working set, below which nothing fits, and `part` / `whole` of what the listed order
/// takes beyond that, rounded down.
[[nodiscard]] inline problem with_spare_memory(const problem& p, std::int64_t part, std::int64_t whole) {
  const std::int64_t low = largest_working_set(p).bytes;
  return p.with_budget(low + (p.graph().baseline_peak - low) * part / whole);
}

}  // namespace remat::test
