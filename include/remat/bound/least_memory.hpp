// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE {

/// The reason why no schedule has a lower peak.
enum class memory_reason : std::uint8_t {
  none,         ///< no operation needs memory
  working_set,  ///< an operation needs its inputs, outputs and workspace
  first_run,    ///< the first run of an operation, when tensors that cannot be computed again are resident, too
  end_of_step,  ///< the last operation runs beside the final outputs
  outputs       ///< the final outputs, which may come back from the host after the last operation
};

/// A proven lower bound on the peak of every schedule, with its reason.
struct least_memory_result {
  std::int64_t bytes = 0;                      ///< no schedule has a lower peak
  memory_reason reason = memory_reason::none;  ///< why
  op_id operation{};                           ///< the operation that runs; for `end_of_step`, the best last operation
  std::int64_t working_set = 0;                ///< bytes of that operation
  std::vector<tensor_id> also_resident{};      ///< the tensors beside the working set, for `first_run`

  /// Returns the reason in words, in one line. `name` is the name of `operation`, if it is known.
  [[nodiscard]] std::string message(const std::string& name = {}) const;
};

/// Options of `least_memory_bound`.
struct least_memory_options {
  std::uint32_t moments = 64;  ///< the largest number of first runs that are tried
  run_control run{};           ///< `stop` and `time_limit` end the search; the other fields are not used
};

/// Returns the largest of two memory bounds that take linear time: the working sets of the needed operations, and the
/// end of the training step.
///
/// All final outputs are resident at the end. The last compute makes a final output or has an effect, unless it is
/// idle; a schedule without its idle computes has no higher peak. While the last compute runs, all final outputs are
/// allocated, and its own inputs, outputs and workspace. If the problem has a link, final outputs may lie on the host
/// meanwhile; then the end of the training step needs the final outputs alone. O(operations + reads and writes) time.
[[nodiscard]] least_memory_result largest_working_set(const problem& p);

/// Returns a lower bound on the peak of every schedule, whatever time it takes: no budget below it can be met.
///
/// The bound is `largest_working_set` or, if some operations must not run twice, the least memory in use at the first
/// run of an operation (a minimum cut), whichever is larger. First runs are tried in descending order of the bytes that
/// the listed order holds there and that cannot be computed again. A first run that takes no more memory than the bound
/// in the listed order is left out: it cannot raise the bound. If the problem has a link, tensors that cannot be
/// computed again may lie on the host, and the bound is `largest_working_set`. So the bound is the largest of its kind,
/// unless `moments` or the run control ends the search; then it is smaller, but valid. O(operations + reads and writes)
/// time, and one maximum flow for each first run that is tried. Polls before each wave of a flow. Proofs:
/// docs/bounds.md, section 5.
[[nodiscard]] least_memory_result least_memory_bound(const problem& p, const least_memory_options& options = {});

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/bound/impl/least_memory.hpp"
#endif
