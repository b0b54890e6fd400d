// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat::detail {

/// Options of `retain`.
struct retain_options {
  /// Rounds over all recomputations. The first one only spends free memory; the later ones also make room, by dropping
  /// tensors that are cheaper to recompute.
  std::uint32_t rounds = 3;
  std::size_t most_repairs = 12;  ///< tensors that may be dropped to make room for one
};

/// Spends the memory that a schedule leaves free: wherever the budget of `p` allows it, a tensor is held until its next
/// use instead of being recomputed. The recomputation that saves most time per byte and step is tried first.
///
/// Preconditions: `start` is legal, within the budget of `p`, and has the form that `schedule_computes` gives. The
/// result is legal, within the budget and not slower. Deterministic.
/// O(rounds · recomputations · length of the intervals) time. Polls, and counts work, before each recomputation
/// (`work_of::visit` in the first round, then `work_of::move`) and every 4096 steps of a repair's search.
[[nodiscard]] schedule retain(const problem& p, schedule start, run_clock& clock, const retain_options& options = {});

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/refine/impl/retain.hpp"
#endif
