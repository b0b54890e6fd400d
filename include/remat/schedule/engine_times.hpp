// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "remat/problem/problem.hpp"
#include "remat/schedule/engine.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE {

/// When each step of a schedule runs.
struct engine_times {
  /// Of each step. For `free`, the moment when the device's bytes are free; for `drop`, the moment when the host's are.
  std::vector<step_times> steps{};
  std::array<double, num_engines> busy{};  ///< the sum of the times of what each engine does
  double makespan = 0;                     ///< when the last engine ends: `check_report::time`

  /// Returns how long engine `e` is busy.
  [[nodiscard]] double busy_of(engine e) const noexcept { return busy[static_cast<std::size_t>(e)]; }
};

/// Simulates the engines on a schedule: computes, copies to the host and copies back run side by side.
///
/// Each engine does its steps in the order of the list, as early as these rules allow:
///
/// - A copy begins when the computes listed before it have ended. A copy out waits for a copy in of its tensor, and a
///   copy in until the copy on the host is whole.
/// - A compute waits for copies in of the tensors that it reads or writes, and for copies out of those that it writes.
/// - A `free` waits for copies of its tensor in both directions; every compute and every copy listed later waits with
///   it.
/// - After a `drop`, later copies out wait for a copy in of its tensor.
///
/// The makespan is exactly the time that `check` reports. A schedule without copies runs one compute after the other.
/// O(steps + their reads and writes) time; O(steps + tensors) memory. Throws `bad_argument` if `check(p, steps)`
/// refuses the schedule.
///
///     const engine_times t = engine_times_of(p, plan);
///     const double idle = t.makespan - t.busy_of(engine::compute);
[[nodiscard]] engine_times engine_times_of(const problem& p, std::span<const step> steps);

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/schedule/impl/engine_times.hpp"
#endif
