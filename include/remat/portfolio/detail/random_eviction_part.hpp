// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <limits>

#include "remat/core/run.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/evict.hpp"
#include "remat/portfolio/detail/part.hpp"
#include "remat/portfolio/detail/part_setting.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/portfolio/detail/shares.hpp"

namespace REMAT_NAMESPACE::detail {

/// Eviction under random preferences, other ones in each slice.
[[nodiscard]] inline portfolio_part random_eviction_part(const part_setting& s) {
  portfolio_part part;
  part.name = "random eviction";
  part.weight = 0.7;
  part.first_share = 0.05;
  part.run = [&s, slices = std::uint64_t{0}](const pool_view& now, run_clock& clock) mutable {
    const run_control& limits = clock.control();
    const bool is_timed = !limits.has_work_limit() && limits.has_time_limit();
    evict_options wider;
    wider.random_passes = is_timed ? std::numeric_limits<std::uint64_t>::max() : 200;
    wider.run = limits;
    wider.run.seed += slices++;
    part_slice slice;
    slice.found = solve_within_memory(clock, [&] { return evict(now.instance, wider); });
    clock.work(slice.found.statistics.work);
    slice.found.by = s.name_of(slice.found.by);
    return slice;
  };
  part.is_useful = [](const pool_view& now) { return !now.best.is_within(part_gaps::wide); };
  return part;
}

}  // namespace REMAT_NAMESPACE::detail
