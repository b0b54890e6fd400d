// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "remat/core/run.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// The results that a part brings back from a slice.
struct part_slice {
  solution found{};    ///< a schedule, perhaps, and a proven bound
  bool ended = false;  ///< the part has nothing more to do
};

/// A part of a portfolio: a way to better schedules or bounds.
struct portfolio_part {
  std::string_view name{};   ///< the stage in reports of progress
  double weight = 1;         ///< how much of the limits it gets beside the others, as long as it helps as they do
  double first_share = 0;    ///< its first slice takes at least this part of the limits left; its turn just this part
  double growth = 2;         ///< each slice to the one before
  bool is_closing = false;   ///< one part: the last slice is its own, and long
  bool runs_alone = false;   ///< no other part runs at the same time
  std::uint32_t shares = 0;  ///< parts with the same number above 0 share something, and never run at the same time
  /// Runs for the time of the clock. Called on any thread, one call after the other; what it changes is its own.
  std::function<part_slice(const pool_view&, run_clock&)> run{};
  /// True if it may help now. Empty: always.
  std::function<bool(const pool_view&)> is_useful{};
  /// Called after a slice, to tell the other parts. May be empty.
  std::function<void(pool_view&)> publish{};
};

/// `portfolio_part::run` by an object, which the copies of the part share: `slices(view, clock)` is one slice.
template <class Slices>
[[nodiscard]] auto run_by(std::shared_ptr<Slices> slices) {
  return [slices = std::move(slices)](const pool_view& now, run_clock& clock) { return (*slices)(now, clock); };
}

/// True if a part has used most of its slice: then it may have been cut off, and would do more in a longer one.
[[nodiscard]] inline bool may_be_cut_off(const run_clock& slice) {
  constexpr double most = 0.8;
  const run_control& limits = slice.control();
  return slice.should_stop() ||
         (limits.has_work_limit() &&
          static_cast<double>(slice.work_done()) > most * static_cast<double>(limits.work_limit)) ||
         (limits.has_time_limit() && slice.seconds() > most * std::chrono::duration<double>(limits.time_limit).count());
}

}  // namespace REMAT_NAMESPACE::detail
