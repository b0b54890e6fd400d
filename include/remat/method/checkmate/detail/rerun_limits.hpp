// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"

namespace remat::detail {

/// The phases in which an operation may run again, if the schedule may take at most a given time.
///
/// Both limits come from turnaround bounds (`moment_cut`) at the first run of each needed operation a:
///  - What runs again *before* it takes its own time beyond the bound. If both together are too long, the operation
///    does not run again in the phase of a, or in one before.
///  - What runs again *after* it makes its outputs after it, so they need not be resident there. If the bound for such
///    choices alone is too long, the operation does not run again in any phase after that of a.
/// The limits hold for every schedule whose first runs are in the listed order. `checkmate_model_options::rule` takes
/// them; docs/checkmate.md says how many decisions go.
///
/// Each bound is the best over some prices of a byte, found by climbing from the best price of the moment before.
/// Some flows for each moment, and for each pair of a moment and an operation before it. A flow is `work_of::flow`.
/// Polls the limits of `run` before and within each flow; a search that is stopped forbids less.
class rerun_limits {
 public:
  /// The limits of the second kind are not computed for more operations: the number of pairs would be too large.
  static constexpr std::uint32_t most_operations = 1000;

  /// Limits for schedules of `p` that take at most `at_most`. For an infinite time nothing is forbidden. Without a
  /// budget, only operations are forbidden that take longer than `at_most` allows beside the needed time.
  rerun_limits(const problem& p, double at_most, const run_control& run = {});

  /// True if operation `o` may run again in the phase that ends with the first run of operation `a`.
  [[nodiscard]] bool allows(op_id a, op_id o) const {
    return time_[index(o)] <= slack_[index(a)] && index(a) <= last_[index(o)];
  }
  /// The highest turnaround bound that was found, on the time of what runs again.
  [[nodiscard]] double recomputation() const noexcept { return recomputation_; }
  /// The number of flows.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }
  /// False if a limit or a stop request ended the search.
  [[nodiscard]] bool is_complete() const noexcept { return complete_; }

 private:
  std::vector<double> time_, slack_;  // of an operation; the time that is left in the phase of one
  std::vector<std::uint32_t> last_;   // the operation in whose phase an operation may run again the last time
  double recomputation_ = 0;
  std::uint64_t work_ = 0;
  bool complete_ = true;
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/checkmate/impl/rerun_limits.hpp"
#endif
