// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "remat/core/run.hpp"
#include "remat/portfolio/detail/part.hpp"
#include "remat/portfolio/detail/part_setting.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/portfolio/detail/shares.hpp"
#include "remat/portfolio/detail/window_schedules.hpp"
#include "remat/refine/detail/large_neighbourhood.hpp"
#include "remat/schedule/simplify.hpp"

namespace REMAT_NAMESPACE::detail {

/// Solves windows of the best schedule; then anneals with windows.
class best_windows {
 public:
  explicit best_windows(const part_setting& s) : s_(s) {}

  /// True if there is something to do for the best schedule.
  [[nodiscard]] bool is_open(const pool_view& now) const {
    return now.best.plan && !now.best.is_within(part_gaps::windows) && (anneals_windows(s_) || !has_solved(now));
  }

  part_slice operator()(const pool_view& now, run_clock& clock) {
    part_slice slice;
    if (!now.best.plan) return slice;
    if (!has_solved(now)) {
      if (!windows_) windows_.emplace(s_.instance, all_window_widths());
      if (now.best.time != time_) windows_->start(computes_of(*now.best.plan));
      ended_ = windows_->run(clock);
      time_ = std::min(now.best.time, keep_windows(s_, *windows_, now.instance, slice.found));
    }
    if (clock.should_stop() || !anneals_windows(s_)) return slice;
    const bool is_better = slice.found.plan.has_value() && slice.found.time < now.best.time;
    const solution& from = is_better ? slice.found : now.best;
    anneal_windows(s_, *from.plan, from.time, now, 2 * annealed_++, clock, slice.found);
    return slice;
  }

 private:
  [[nodiscard]] bool has_solved(const pool_view& now) const { return now.best.time == time_ && ended_; }

  const part_setting& s_;
  std::optional<large_neighbourhood> windows_;
  double time_ = 0;     // the time of the schedule on which windows_ works
  bool ended_ = false;  // it has solved all of them
  std::uint64_t annealed_ = 0;
};

/// Windows of the best schedule.
[[nodiscard]] inline portfolio_part windows_part(const part_setting& s) {
  const auto windows = std::make_shared<best_windows>(s);
  portfolio_part part;
  part.name = "windows";
  part.weight = 2;
  part.first_share = 0.15;
  part.run = run_by(windows);
  part.is_useful = [windows](const pool_view& now) { return windows->is_open(now); };
  return part;
}

}  // namespace REMAT_NAMESPACE::detail
