// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/mip/backend_ref.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

/// Moves of `refined` that count as much as a unit of work of a MIP backend.
inline constexpr std::uint64_t checkmate_moves_per_node = 400;

/// Options of `checkmate_solver`.
struct checkmate_options {
  /// Further schedules to start from. Those that are not within the budget are not used.
  std::vector<schedule> starts{};
  /// The integer program is not begun, or left, when the best time is at most (1 + this) × the proven lower bound.
  double good_enough = 1e-3;
  /// The number of `checkmate_model_options::moments`: those of the highest bounds are taken.
  std::uint32_t moments = 4;
  std::int64_t units = std::int64_t{1} << 20;  ///< `checkmate_model_options::units`
  /// A model of more columns is not built: its first linear program alone would take minutes.
  double most_columns = 60'000;
  std::uint64_t default_nodes = 100;  ///< nodes of the backend's search if there is no limit at all
  run_control run{};                  ///< Limits, seed, threads, progress.

  /// Calls `visit(name, field, text)` for each scalar option but those of `run`; `text` is one line for people.
  template <class Self, class Visit>
  static void visit_options(Self& self, Visit&& visit) {
    visit("good_enough", self.good_enough, "no integer program within this of the proven bound");
    visit("moments", self.moments, "moments of the model with rows of the turnaround bound");
    visit("units", self.units, "parts in which the model counts the budget");
    visit("most_columns", self.most_columns, "larger integer programs are not built");
    visit("default_nodes", self.default_nodes, "nodes of the search where there is no limit at all");
  }
};

/// Checkmate's integer program (`checkmate_model`), solved by a MIP backend, and started from the best schedule that
/// `rockmate` and then `refined` find. \cite jain2020checkmate
///
/// `rockmate` gets a fifth of the limits, `refined` four fifths of what is left then, since their answer is seldom
/// improved. If their best schedule is not `good_enough`, the program is built for faster schedules alone, and the
/// backend gets the rest. Each solution of the backend is rebuilt into a schedule, which is freed as early as possible
/// and passes the exact checker.
///
/// The program's optimum holds for the listed order of first runs and for at most one more run of an operation in a
/// phase. So it proves nothing of the problem, and its infeasibility does not, either: `lower_bound`, `optimal` and
/// `infeasible` come from the bounds that `refined` proves. `message` says how the program ended.
///
/// Differs from the paper: no variables for frees (see `checkmate_model`), tensors of several producers, sizes in
/// units, and the turnaround bound's rows. Only the decisions are rounded, to the nearest whole number; the paper's LP
/// rounding is not used.
///
/// A unit of work is a move of `refined`; `checkmate_moves_per_node` of them are a unit of the backend's work
/// (`mip_options`). Under a work limit the answer is the same for a seed and any number of threads. Without any limit,
/// the backend ends after `default_nodes` nodes.
///
/// Throws `bad_argument` for `good_enough` or `most_columns` that is NaN or negative, and for `units` below 1.
/// Cancellation: as `rockmate`, `refined` and the backend; building the model polls at every event of the program.
///
/// `solution::by`: "checkmate/program" for the integer program, "checkmate/start" for a given start, "checkmate/PART/…"
/// for `evict`, `rockmate` and `refined`.
///
///     solution s = remat::checkmate_with(remat::branch_and_bound)(problem, {.run = {.time_limit = 10s}});
template <mip_backend Backend>
struct checkmate_solver {
  using options_type = checkmate_options;                ///< The options of this solver.
  static constexpr std::string_view name = "checkmate";  ///< The solver's name in tables and progress reports.
  Backend backend{};                                     ///< solves the integer programs

  /// Returns the best schedule found within the budget of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const checkmate_options& options = {}) const;
};

/// Checkmate on a backend: `checkmate_with(branch_and_bound)(problem, options)`.
template <mip_backend Backend>
[[nodiscard]] constexpr checkmate_solver<Backend> checkmate_with(Backend backend) {
  return {std::move(backend)};
}

namespace detail::checkmate_search {

/// The body of `checkmate_solver`, for a backend of any type.
[[nodiscard]] solution solve(mip_backend_ref backend, const problem& p, const checkmate_options& options);

}  // namespace detail::checkmate_search

template <mip_backend Backend>
solution checkmate_solver<Backend>::operator()(const problem& p, const checkmate_options& options) const {
  return detail::checkmate_search::solve(backend, p, options);
}

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/solver/impl/checkmate.hpp"
#endif
