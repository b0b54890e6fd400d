// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/schedule/lifetime.hpp"

namespace REMAT_NAMESPACE {

/// A buffer of `size` bytes during the times [lower, upper). The names are those of intervals files.
struct interval {
  std::int64_t lower = 0;  ///< the first time at which the buffer is in use
  std::int64_t upper = 0;  ///< the first time at which it is in use no longer; above `lower`
  std::int64_t size = 0;   ///< bytes, at least 0

  friend bool operator==(const interval&, const interval&) = default;
};

/// The intervals of a schedule's allocations, in the order of `lives.allocations`.
///
/// `elsewhere` names tensors that do not lie in the arena, such as outputs in memory of the caller: their intervals
/// have size 0. O(allocations · log |elsewhere|).
[[nodiscard]] std::vector<interval> intervals_of(const lifetimes& lives, std::span<const tensor_id> elsewhere = {});

/// The intervals of a schedule's copies on the host, in the order of `lives.host`: for an arena of the host.
///
///     const memory_plan host_arena = plan_memory(host_intervals_of(lives));
[[nodiscard]] std::vector<interval> host_intervals_of(const lifetimes& lives);

/// The ways in which offsets in one arena can be wrong.
enum class memory_violation : std::uint8_t {
  none,           ///< there is no violation
  wrong_count,    ///< the number of offsets differs from the number of intervals
  bad_interval,   ///< a negative size, or an empty lifetime
  bad_alignment,  ///< an alignment below 1
  misaligned,     ///< an offset is no multiple of the alignment
  out_of_arena,   ///< a negative offset, or an end beyond the arena
  overlap         ///< two intervals share a byte at the same time
};

/// The first violation that the checker of memory plans found.
struct memory_check_report {
  memory_violation what = memory_violation::none;  ///< the kind of the violation
  std::size_t at = 0;                              ///< the interval
  std::size_t other = 0;                           ///< the interval that it overlaps

  /// True when the checker found no violation.
  [[nodiscard]] bool valid() const noexcept { return what == memory_violation::none; }

  /// One line in words.
  [[nodiscard]] std::string message() const;
};

/// Checks that offsets keep all intervals apart within [0, arena_bytes), each at a multiple of `alignment`.
///
/// Shares no code with the planner. Intervals of size 0 overlap none. Method: a sweep over time that keeps the
/// intervals alive in the order of their offsets. O(n log n) time, O(n) memory. Reports a bad plan, and never throws
/// for one.
[[nodiscard]] memory_check_report check_memory(std::span<const interval> intervals,
                                               std::span<const std::int64_t> offsets, std::int64_t arena_bytes,
                                               std::int64_t alignment = 1);

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/memory/impl/check.hpp"
#endif
