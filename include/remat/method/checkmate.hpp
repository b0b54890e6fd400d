// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/mip/model.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// Options of `checkmate_solver`.
struct checkmate_options {
  /// Schedules to start from. Those over the budget are ignored.
  std::vector<schedule> starts{};
  /// \name Settings (`records` says what they are)
  /// @{
  bool warm_start = false;
  double gap = default_gap;
  std::uint32_t moments = 4;
  std::int64_t units = std::int64_t{1} << 20;
  /// The whole program is not built if `checkmate_model::size_estimate` exceeds this, nor any model of more than twice
  /// as many columns: its first linear program alone would take minutes.
  double max_columns = 60'000;
  /// Relaxations are solved for the budget, and for smaller ones, so that the rounded schedule fits.
  std::uint32_t relaxations = 5;
  double relaxation_step = 0.05;
  std::uint32_t random_roundings = 100;
  std::uint32_t distance = 9;
  bool windows = true;
  std::uint64_t window_nodes = 500;
  std::uint64_t default_nodes = 100;
  /// @}
  improvement improve{};  ///< the improvement after the own method: none, or `by_refinement` (remat/method/refined.hpp)
  run_control run{};      ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() {
    using o = checkmate_options;
    return std::tuple{
        option("warm_start", &o::warm_start,
               "Start from the schedules that rockmate and refined find in half of the limits."),
        option("gap", &o::gap, "End with a time of at most (1 + gap) × the proven bound.").from(0).fast(0.01),
        option("moments", &o::moments,
               "The model has rows for so many moments of the turnaround bound, the highest ones.")
            .paper(0),
        option("units", &o::units, "The model counts the budget in so many units.").from(1),
        option("max_columns", &o::max_columns, "Integer programs with more columns are not built.")
            .from(0)
            .fast(20'000),
        option("relaxations", &o::relaxations, "So many relaxations are rounded, until one gives a schedule.")
            .fast(2)
            .paper(1),
        option("relaxation_step", &o::relaxation_step,
               "From one relaxation to the next the budget falls by this share.")
            .from(0)
            .to(0.99)
            .paper(0.1),
        option("random_roundings", &o::random_roundings, "Each relaxation is rounded at random so many times.")
            .fast(20),
        option("distance", &o::distance,
               "In the programs in which an operation runs again only near its phase, it does so within at most so "
               "many phases; 0: there are no such programs.")
            .fast(3)
            .paper(0),
        option("windows", &o::windows, "Decide windows of the best schedule anew.").fast(false).paper(false),
        option("window_nodes", &o::window_nodes,
               "The search in each program but the whole one has at most so many nodes."),
        option("default_nodes", &o::default_nodes,
               "If there is no limit at all, the search in the whole program has at most so many nodes.")
            .fast(10)};
  }
};

/// Checkmate's integer program (`checkmate_model`), its relaxation with two-phase rounding, and its optimum by a MIP
/// backend. \cite jain2020checkmate
///
///  1. The linear relaxation for the budget is solved and rounded (`checkmate_model::round`) with the thresholds 0.5,
///     0.25, 0.1 and 0.75, and `random_roundings` times at random. If no rounded schedule fits, it is solved again for
///     smaller budgets.
///  2. Near programs: the same program with fewer decisions. An operation may run again only in phases whose operation
///     is at most d reads after it, for d = 1, 2, 3, 4, 6, 9, … up to `distance`. If there is a schedule, a second
///     program for d has the decisions of that schedule, too.
///  3. Windows: all decisions of some phases, or of some operations, are free; the others are those of the best
///     schedule. The windows grow.
///  4. The whole program, for faster schedules alone (`rerun_limits`), started from the best schedule.
///
/// Each solution of the backend is rebuilt into a schedule, which is freed as early as possible and passes the exact
/// checker. Steps 1 to 3 get at most 2/5, 1/2 and 3/5 of what is left of the limits when they begin; the last unit of
/// the backend's work may exceed that.
///
/// The program's optimum holds for the listed order of first runs and for at most one more run of an operation in a
/// phase. So neither its optimum nor its infeasibility proves anything of the problem: `lower_bound`, `optimal` and
/// `infeasible` come from the turnaround bound. `message` says how the program ended.
///
/// Differs from the paper: no variables for frees (see `checkmate_model`), tensors of several producers, sizes in
/// units, the turnaround bound's rows, several thresholds and budgets for the rounding; steps 2 and 3 are not in the
/// paper. With `moments` = 0, `distance` = 0 and `windows` = false it is the paper's method.
///
/// Figures (`solve_statistics::own`): `relaxation_solved`, `relaxation_time` (its value, as a time: not a bound),
/// `relaxation_columns`, `relaxation_rows`, `relaxation_seconds`; `rounding_tries`, `rounding_fitting` (of the tries,
/// those whose schedule is within the budget), `rounding_time` (the best), `rounding_left_free` (the share of the
/// budget that the rounded relaxation left free), `rounding_relaxations`, `rounding_seconds`; `near`, a list of
/// programs, each with `distance`, `around_schedule`, `decisions`, `columns`, `rows`, `nodes`, `seconds`, `ending`;
/// only `distance`, `around_schedule` and `ending` ("too large" or "stopped") for the last one if it was not built,
/// which ends the list; `window_programs`, `windows_not_built`, `window_improvements`, `window_nodes`,
/// `window_seconds`; `program_phases`, `program_decisions`, `program_columns`, `program_rows`, `program_nodes`,
/// `program_bound` (a time, by the backend's word), `program_gap` ((best time − bound) / bound), `program_seconds`,
/// `program_ending` (a `mip_status`, or "too large" or "stopped" if it was not built, or "nothing to decide");
/// `wrong_solutions` of the backend, in all steps, that are no schedules; if the backend failed
/// (`mip_backend_ref::solve`), `backend_failures`, their number, and `backend_failure`, the first one; `own_time`,
/// `own_peak_bytes` and `own_by` with `improve`.
///
/// Work: that of the backend (`mip_result::work`), and `work_of::flow` for each flow of `rerun_limits`; building a
/// program and rounding count nothing. Under a work limit the answer is the same for a seed and any number of threads.
/// Without any limit, each search of the backend ends after `window_nodes` or `default_nodes` nodes.
///
/// Throws `bad_argument` for `gap` or `max_columns` that is NaN or negative, for `units` below 1, and for
/// `relaxation_step` outside of [0, 0.99], and for a schedule to start from that is illegal for another reason than the
/// budget. Cancellation: as the backend; building a model polls at every event of the program.
///
/// `solution::by`: "checkmate/rounding", "checkmate/near", "checkmate/window", "checkmate/program"; "checkmate/start"
/// for a given start, "checkmate/start/…" for `rockmate` and `refined` by `warm_start`, "checkmate/refined/…" by
/// `improve`.
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

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/checkmate/impl/checkmate.hpp"
#endif
