// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE {

/// Options of `least_memory_within`.
struct least_memory_within_options {
  std::uint32_t budgets = 12;  ///< the most budgets that are tried; each more halves what the bound may still gain
  /// As in `turnaround_options`, for a second bisection above what the first one has proven. 12 takes some seconds on
  /// some hundred operations, and raises the bound by a fifth to a third where a good part of the step runs again.
  std::uint32_t chain_moments = 0;
  run_control run{};  ///< `stop` and `time_limit` end the search; the other fields are not used

  /// For the limits of `run`: with chains of moments if its time is limited, as they may take long.
  [[nodiscard]] static least_memory_within_options under(const run_control& run) {
    return {.chain_moments = run.has_time_limit() ? 12U : 0U, .run = run};
  }
};

/// Returns a lower bound, in bytes, on the peak of every schedule that takes at most `max_time`, in the cost model's
/// unit: what `least_memory_bound` is for any time.
///
/// A lower bound on the time of all schedules within a budget (`turnaround_bound`, or `offload_bound` if the problem
/// has a link) that exceeds `max_time` proves that every schedule that is fast enough has a higher peak. Bisection
/// between `least_memory_bound` and the listed order's peak, or the budget of `p` if that is smaller, finds the largest
/// budget with such a proof, nearly; it ends at intervals below a thousandth. If the proof holds for the budget of `p`,
/// the result is that budget plus 1; `problem::unlimited` if no schedule at all is fast enough. Whatever ends the
/// search, the result is a bound. One search of a bound for each budget. Throws `bad_argument` for a NaN.
[[nodiscard]] std::int64_t least_memory_within(const problem& p, double max_time,
                                               const least_memory_within_options& options = {});

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/bound/impl/least_memory_within.hpp"
#endif
