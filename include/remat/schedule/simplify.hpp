// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE {

/// Returns the listed order with nothing recomputed, each tensor freed right after its last use: the schedule whose
/// peak and time are `flat_graph::baseline_peak` and `flat_graph::baseline_time`. All operations run, also those that
/// no final output and no effect needs. O(operations + reads and writes).
[[nodiscard]] schedule listed_order(const problem& p);

/// Returns the schedule of a sequence of computes. It leaves out computes whose results no other step reads, and frees
/// each tensor right after the last use of its allocation.
///
/// No other schedule with these computes in this order uses less memory at any of them. A sequence that is not legal
/// (it reads a tensor that was never computed) gives a schedule that `check` refuses. O(reads and writes of the
/// sequence) time.
[[nodiscard]] schedule schedule_computes(const flat_graph& g, std::span<const std::uint32_t> operations);

/// \overload
[[nodiscard]] inline schedule schedule_computes(const problem& p, std::span<const std::uint32_t> operations) {
  return schedule_computes(p.graph(), operations);
}

/// Returns the operations that a schedule runs, in order.
[[nodiscard]] std::vector<std::uint32_t> computes_of(const schedule& plan);

/// Returns the same computes and copies without those whose results no step reads, and with every free as early as
/// possible. Peak, the host's peak and time are never higher. Precondition: `plan` is legal. O(reads and writes of its
/// steps) time.
///
/// A free waits for copies out of its tensor, and a drop makes later copies out wait. So a free stays where it is if
/// its tensor was copied out since it was allocated, and every drop stays where it is.
[[nodiscard]] schedule simplify(const problem& p, const schedule& plan);

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/schedule/impl/simplify.hpp"
#endif
