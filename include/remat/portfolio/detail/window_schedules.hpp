// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "remat/core/run.hpp"
#include "remat/portfolio/detail/part_setting.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/portfolio/detail/shares.hpp"
#include "remat/refine/detail/large_neighbourhood.hpp"
#include "remat/refine/detail/window_annealing.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// True if windows are disturbed and solved again and again, not only solved once.
[[nodiscard]] inline bool anneals_windows(const part_setting& s) noexcept {
  return s.size() <= graph_sizes::window_annealing;
}

/// The widths of windows, the narrow ones first, and how long one is searched.
[[nodiscard]] inline window_effort all_window_widths() {
  return {.widths = {8, 12, 16, 24, 32, 48, 64, 96, 128}, .steps = 3, .max_states = {1'000, 10'000}};
}

/// Keeps the schedule of `windows` if it is better. Returns its time.
inline double keep_windows(const part_setting& s, const large_neighbourhood& windows, const problem& p,
                           solution& found) {
  return keep_valid(p, schedule_computes(p, windows.computes()), s.name_of("windows"), found);
}

/// Disturbs a schedule and solves windows, again and again, in searches of different seeds.
inline void anneal_windows(const part_setting& s, const schedule& from, double time, const pool_view& now,
                           std::uint64_t seed, run_clock& clock, solution& found) {
  run_control control = clock.limits();
  control.on_progress = clock.control().on_progress;
  control.seed += seed;
  run_clock own(control);
  for (const window_searches::answer& one :
       anneal_windows_together(s.instance, from, time, now.best.lower_bound * (1 + s.gap), own)) {
    if (one.time >= std::min(time, found.time)) continue;
    keep_valid(now.instance, schedule_computes(s.instance, one.computes), s.name_of("windows"), found);
  }
  clock.work(own.work_done());
}

}  // namespace REMAT_NAMESPACE::detail
