// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/option.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE {

/// The parts of a machine that work side by side. Each does what it is given in the order of the schedule.
enum class engine : std::uint8_t {
  compute,   ///< runs operations
  copy_out,  ///< copies from the device to the host
  copy_in    ///< copies from the host to the device
};

/// The names of the values. This list has every engine: `num_engines` is its length.
template <>
struct enum_names<engine> {
  /// Value and name.
  static constexpr std::array<std::pair<engine, std::string_view>, 3> all{
      {{engine::compute, "compute"}, {engine::copy_out, "copies out"}, {engine::copy_in, "copies in"}}};
};

/// The number of engines.
inline constexpr std::size_t num_engines = enum_names<engine>::all.size();

/// Returns the engine that does a step of this kind; empty for a kind that takes no time (`free`, `drop`).
[[nodiscard]] constexpr std::optional<engine> engine_of(step_kind kind) noexcept {
  switch (kind) {
    case step_kind::compute:
      return engine::compute;
    case step_kind::offload:
      return engine::copy_out;
    case step_kind::prefetch:
      return engine::copy_in;
    case step_kind::free:
    case step_kind::drop:
      break;
  }
  return std::nullopt;
}

/// From when to when an engine does one step, in the cost model's unit of time.
struct step_times {
  double begin = 0;  ///< when it begins
  double end = 0;    ///< when it ends; equal to `begin` for a step that takes no time

  /// Compares both.
  friend constexpr bool operator==(const step_times&, const step_times&) = default;
};

/// When each step of a schedule runs.
struct engine_times {
  /// Of each step. For `free`, the moment when the device's bytes are free; for `drop`, the moment when the host's are.
  std::vector<step_times> steps{};
  std::array<double, num_engines> busy{};  ///< of each engine: the sum of the times of what it does
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
#include "remat/schedule/impl/engines.hpp"
#endif
