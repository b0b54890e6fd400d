// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/index_rows.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat {

/// One allocation of a schedule: a tensor from the compute that allocates it to its free, or the workspace of one
/// compute. It occupies memory during the steps [first, last).
struct allocation {
  /// Marks workspace, which is no tensor.
  static constexpr std::uint32_t no_tensor = 0xffffffff;

  std::uint32_t first = 0;           ///< the step that allocates it
  std::uint32_t last = 0;            ///< the step that frees it; the number of steps where none does
  std::uint32_t tensor = no_tensor;  ///< `no_tensor` for workspace, whose `last` is `first` + 1
  std::uint32_t operation = 0;       ///< the operation that allocates it, or uses it as workspace
  std::int64_t bytes = 0;            ///< of the tensor or the workspace

  /// True for workspace, false for a tensor.
  [[nodiscard]] bool is_workspace() const noexcept { return tensor == no_tensor; }
  /// Compares all members.
  friend bool operator==(const allocation&, const allocation&) = default;
};

/// All allocations of a schedule, and for each compute the allocations that it reads, writes and uses as workspace.
///
/// A tensor that is freed and computed again has an allocation for each time. A tensor of 0 bytes has allocations like
/// any other. An operation without workspace has no allocation for it.
struct lifetimes {
  /// Marks a step without workspace.
  static constexpr std::uint32_t no_allocation = 0xffffffff;

  std::vector<allocation> allocations;  ///< ascending in `first`; of one compute: its new outputs, then the workspace
  index_rows inputs;   ///< step → the allocations that it reads, in the order of the operation's row; none for a free
  index_rows outputs;  ///< step → the allocations that it writes, in the order of the operation's row; none for a free
  std::vector<std::uint32_t> workspace;  ///< step → the allocation of its workspace, or no_allocation

  /// The number of steps of the schedule.
  [[nodiscard]] std::size_t num_steps() const noexcept { return workspace.size(); }
};

/// Returns the allocations of a schedule with their lifetimes.
///
/// The largest sum of the bytes that are allocated during one compute is the peak that `check` reports.
/// O(steps + their reads and writes) time and memory.
/// Throws `bad_argument` if `check(p, steps)` refuses the schedule, or if it has 2^32 − 1 or more allocations, steps or
/// reads.
[[nodiscard]] lifetimes lifetimes_of(const problem& p, std::span<const step> steps);

/// \overload
[[nodiscard]] inline lifetimes lifetimes_of(const problem& p, const schedule& plan) {
  return lifetimes_of(p, std::span<const step>(plan.steps));
}

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/schedule/impl/lifetime.hpp"
#endif
