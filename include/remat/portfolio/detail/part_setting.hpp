// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "remat/bound/turnaround.hpp"
#include "remat/core/error.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// The common setting of the parts that recompute. It must outlive them, and does not change while they run.
struct part_setting {
  problem instance;                ///< its graph and budget; the bound that it knows is that of the beginning
  std::string_view whole{};        ///< the solver whose parts they are, in `solution::by`
  std::uint32_t branch_nodes = 0;  ///< most nodes of a bound: `turnaround_options::branch_nodes`
  std::uint32_t searches = 0;      ///< the searches of annealing: `refine_options::searches`
  double gap = 0;                  ///< a schedule within (1 + gap) × the bound is enough
  turnaround_analysis& analysis;   ///< the graph's; one call after the other

  [[nodiscard]] std::uint32_t size() const noexcept { return instance.graph().num_operations; }
  /// The name of a schedule that the part `by` has found.
  [[nodiscard]] std::string name_of(std::string_view by) const { return by_part(whole, by); }
};

/// Keeps a schedule in `found` if it is better. Throws `internal_error` if it is not valid: its part has a defect.
/// Returns its time.
inline double keep_valid(const problem& p, schedule plan, const std::string& by, solution& found) {
  const check_report report = check(p, plan);
  if (!report.valid()) throw internal_error(by + " made an invalid schedule: " + report.message());
  keep_if_better(found, std::move(plan), report, by);
  return report.time;
}

}  // namespace REMAT_NAMESPACE::detail
