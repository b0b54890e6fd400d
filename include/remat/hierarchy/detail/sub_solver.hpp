// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat::detail {

/// The answer of a sub-solver.
struct sub_solution {
  std::optional<schedule> plan{};                         ///< legal and within the budget; none: none was found
  double time = std::numeric_limits<double>::infinity();  ///< of the plan
  double lower_bound = 0;  ///< proven: no schedule within the budget takes less; infinite: no schedule fits
  std::uint64_t work = 0;  ///< units of work that the solver counted

  /// True if it is proven that no schedule fits the budget.
  [[nodiscard]] bool infeasible() const noexcept { return std::isinf(lower_bound); }
  /// True if there is a plan whose time meets the bound (`is_optimal`).
  [[nodiscard]] bool optimal() const noexcept { return plan.has_value() && is_optimal(time, lower_bound); }
};

/// The solvers of the small problems that a hierarchy leads to. They keep the limits of `run`, may be called by several
/// threads at once, and call no progress callback.
///
/// - `s.thorough(p, starts, run)` searches from `starts` (schedules that do not fit the budget are ignored) until its
///   bound is met or a limit is reached.
/// - `s.tight(p, run)` is for tight budgets, if `thorough` ends far from its bound; called only if `s.has_tight()`.
/// - `s.starts(i, runs, peak, save, clock)` gives schedules of `sub_graph_runs::problem_within(peak, save)` to start
/// from,
///   for sub-graph i. It counts its work on the clock, and stops when that says so.
template <class S>
concept sub_solver_set = requires(const S& s, const problem& p, std::span<const schedule> starts,
                                  const run_control& run, std::size_t i, const sub_graph_runs& runs, std::int64_t bytes,
                                  run_clock& clock) {
  { s.thorough(p, starts, run) } -> std::same_as<sub_solution>;
  { s.has_tight() } -> std::same_as<bool>;
  { s.tight(p, run) } -> std::same_as<sub_solution>;
  { s.starts(i, runs, bytes, bytes, clock) } -> std::same_as<std::vector<schedule>>;
};

}  // namespace remat::detail
