// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE {

/// The ways in which a schedule can be wrong.
enum class violation : std::uint8_t {
  none,
  no_such_operation,
  no_such_tensor,
  runs_twice,            ///< an operation that may run only once runs again
  input_not_there,       ///< an operation reads a tensor that is not readable
  adds_twice,            ///< an operation contributes twice to one allocation of a tensor of several producers
  free_not_allocated,    ///< a free of a tensor that is not allocated, or is always resident
  effect_missing,        ///< an operation without outputs did not run exactly once
  output_missing,        ///< a final output is not readable at the end
  over_budget,           ///< the peak exceeds the budget
  copy_without_link,     ///< a copy, while the problem has no link
  copy_of_resident,      ///< a copy of a tensor that is always resident
  offload_not_there,     ///< a copy to the host of a tensor that is not readable
  offload_on_host,       ///< a copy to the host of a tensor that has a copy there
  prefetch_not_on_host,  ///< a copy to the device of a tensor that has no copy on the host
  prefetch_allocated,    ///< a copy to the device of a tensor that is allocated there
  drop_not_on_host,      ///< a release of a copy on the host that does not exist
  over_host_budget       ///< the host's peak exceeds its budget
};

/// The verdict of the exact checker. Times and counts cover the steps before the violation, if there is one.
/// Trivially copyable: it is cheap to return and to keep.
struct check_report {
  violation what = violation::none;  ///< the first rule that the schedule breaks; `none` for a valid schedule
  std::size_t at = 0;                ///< the step of the violation; the number of steps for a violation at the end
  op_id operation{};                 ///< the operation of that step, if the violation has one
  tensor_id tensor{};                ///< the tensor that is wrong, if the violation has one
  std::int64_t peak_bytes = 0;       ///< the largest memory at a compute, or after a prefetch
  std::size_t peak_step = 0;         ///< the first step at which memory is `peak_bytes`
  std::int64_t host_peak_bytes = 0;  ///< the most bytes of copies on the host
  std::size_t host_peak_step = 0;    ///< the first offload after which they are `host_peak_bytes`
  /// When the last engine ends, in the cost model's unit (`engine_times_of`): without copies, the sum of all computes.
  double time = 0;
  std::uint64_t computes = 0;    ///< runs of operations
  std::uint64_t recomputes = 0;  ///< runs beyond the first of each operation
  std::uint64_t copies = 0;      ///< copies to the host and back

  /// Returns true for a schedule that is legal and within both budgets.
  [[nodiscard]] bool valid() const noexcept { return what == violation::none; }

  /// Returns the verdict in words, in one line.
  [[nodiscard]] std::string message() const;
};

/// Runs `steps` on the graph of `p` and reports whether they are legal and within the budgets of the device and the
/// host. Exact: in 64-bit integers, which cannot overflow, since a `problem` admits no sizes for which they could.
///
/// The checker shares nothing with any solver but the arrays of the problem. It calls `observe(i, bytes)`, if
/// given, for every legal step. `bytes` is the device's memory while a compute runs (all allocated tensors, its outputs
/// included, and its workspace), or the memory after another step. Memory counts by the list alone: a tensor from the
/// compute or the prefetch that allocates it to its free, its copy on the host from the offload to the drop. So no
/// speed of a copy can break a budget. The budgets are judged last: a schedule that is illegal and over a budget is
/// reported as illegal. Copies need a link (`problem::with_link`). O(steps + their reads and writes) time; O(operations
/// + writes
/// + tensors) memory. Never throws for a bad schedule.
///
///     const check_report report = check(p, plan);
///     if (!report.valid()) std::cerr << report.message();
[[nodiscard]] check_report check(const problem& p, std::span<const step> steps,
                                 const std::function<void(std::size_t, std::int64_t)>& observe = {});

/// When each step of a schedule runs.
struct engine_times {
  /// The times of each step: for `free`, the moment when the device's bytes are free; for `drop`, the moment when the
  /// host's are.
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
#include "remat/schedule/impl/check.hpp"
#endif
