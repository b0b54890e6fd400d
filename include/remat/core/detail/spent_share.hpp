// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "remat/core/run.hpp"

namespace REMAT_NAMESPACE::detail {

/// Returns how much of the limits of a clock is spent, from 0 to about 1: for searches whose temperature falls with it.
/// `otherwise`: the answer without any limit.
[[nodiscard]] inline double spent_share(const run_clock& clock, double otherwise) {
  const run_control& limits = clock.control();
  const bool has_work = limits.has_work_limit();
  const bool has_time = limits.has_time_limit();
  double out = has_work || has_time ? 0 : otherwise;
  if (has_work)
    out = static_cast<double>(clock.work_done()) / static_cast<double>(std::max<std::uint64_t>(1, limits.work_limit));
  if (has_time)
    out = std::max(out, clock.seconds() / std::max(1e-9, std::chrono::duration<double>(limits.time_limit).count()));
  return out;
}

}  // namespace REMAT_NAMESPACE::detail
