// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>

#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat {

/// The result of a sub-solver.
struct sub_solution {
  std::optional<schedule> plan{};                         ///< legal and within the budget; none: none was found
  double time = std::numeric_limits<double>::infinity();  ///< of the plan
  double lower_bound = 0;  ///< proven: no schedule within the budget takes less; infinite: no schedule fits
  std::uint64_t work = 0;  ///< elementary moves that the solver made

  /// True when it is proven that no schedule fits the budget.
  [[nodiscard]] bool infeasible() const noexcept { return std::isinf(lower_bound); }
  /// True when there is a plan whose time meets the bound (`is_optimal`).
  [[nodiscard]] bool optimal() const noexcept { return plan.has_value() && is_optimal(time, lower_bound); }
};

/// A solver of the small problems that a hierarchy leads to: `solve(problem, starts, run)`, where `starts` are
/// schedules to begin with (those that do not fit the budget are ignored). It keeps the limits of `run`, may be called
/// by several threads at once, and calls no progress callback. The default ones are in
/// `remat/method/rockmate/detail/sub_solvers.hpp`.
using sub_solver =
    std::function<sub_solution(const problem& p, std::span<const schedule> starts, const run_control& run)>;

/// The solvers that `find_options` calls for a part within its budgets.
struct part_solvers {
  sub_solver thorough{};  ///< required: searches until its bound is met or its limit on work is reached
  sub_solver tight{};     ///< for tight budgets, where `thorough` ends far from its bound; may be empty
};

/// The solvers that `search_level` calls for a level with one option fixed for each child.
struct level_solvers {
  sub_solver quick{};     ///< required
  sub_solver escalate{};  ///< where a schedule is wanted though it is hard to find; empty: `quick`
};

}  // namespace remat
