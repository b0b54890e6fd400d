// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>
#include <utility>

#include "remat/method/hiremate_options.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

namespace detail {

/// The body of `hiremate_solver`, for a backend of any type.
[[nodiscard]] solution solve_hiremate(mip_backend_ref backend, const problem& p, const hiremate_options& options);

}  // namespace detail

/// HiRemate: nested groups of operations, each distinct group solved once for many budgets, and a schedule put together
/// from the options that these give. \cite gusak2025hiremate
///
/// 1. Hierarchies compete: H-Partition, repeats, cuts of fewest bytes, Rotor's levels of cuts; or one is given.
/// 2. Chains: at each depth the groups of a hierarchy are the stages of a chain. Rotor's dynamic program over the
///    options of the stages gives the schedules for all budgets (`hierarchy_chains`). The levels of cuts of a narrow
///    order of the forward operations are chains as well, where there are at most 20,000 of these.
/// 3. From the bottom up, the options of each group, within a grid of peak and save budgets: by H-ILP, Rotor's program,
///    TwRemat or `refined` on the sub-graph, as the rule says (`find_sub_graph_options`). Groups that are equal up to
///    renaming (and times) share them, and a cache keeps them for other budgets and graphs.
/// 4. The top level, for the true budget: options by a price on saved bytes, the runs by eviction (`search_level`), and
///    the hierarchical integer program on the backend, from the best of these, where it is small enough. A graph
///    without groups is a level of operations.
///
/// Every schedule is expanded to operations, freed as early as possible, and checked. The method ends there; `improve`
/// refines the schedule of all operations.
///
/// `top_solver = h_ilp` and `sub_solver = h_ilp` with `partition = h_partition` is the method of the paper. Differs
/// from it otherwise: sub-graphs are solved by the method that suits them, which is seldom an integer program; chains
/// at every depth; backwards run once in a level; eviction takes part in `search_level`; and the answer has a proven
/// bound. Heuristic: `optimal` and `infeasible` come from that bound alone. Steps in which operations of both passes
/// add to one tensor have chains alone, since no group can hold all the producers of such a sum.
///
/// Limits: each part gets a share of the time and of the work that are left: a quarter the chains without options, half
/// the chains with options, a quarter their finer tables; of the rest, each hierarchy equally, a third the options
/// (three fifths for `top_solver = h_ilp`), a third the search of the top level, and the integer programs all that is
/// left. Nothing more is begun once the best schedule is within `gap` of the proven bound. Work: that of
/// the sub-solvers and of the backend, rows of tables, and operations of expanded schedules; an integer program is not
/// begun if its first linear program is likely to take more than is left. For a seed and a limit on work the answer is
/// the same for any number of threads. The bound, the partitions and the narrow order are not counted. Polls before
/// each sub-problem and each row of a table; the sub-solvers poll as their headers say.
///
/// Throws `bad_argument` for a given hierarchy that is not one of the problem's graph (`check_hierarchy`), `max_group`
/// below 2, `max_top`, `slots` or `max_stages` 0, `slots` above 2^24, and `gap` or `most_columns` that is
/// negative or not a number.
///
/// `solution::by`: "hiremate/PARTITION/chain" for Rotor's program, "hiremate/PARTITION/search_level" and
/// "hiremate/PARTITION/h_ilp" for a top level, where PARTITION is "h_partition", "repeats", "cuts", "levels" or
/// "given", and for chains also "narrow"; "hiremate/no_remat"; with `improve` also "hiremate/refined/…".
///
/// Figures (`statistics.own`): `hierarchies`, a list, one for each hierarchy:
/// - `partition`, `groups`, `depth`, `top` (children of the whole graph), `top_options` (of all of them), and
///   `chains_alone` where "levels" has too many children for a top level;
/// - `levels`, from the deepest up: `depth`, `groups`, `distinct` (up to renaming), `reused` (of these, from a cache),
///   `solves`, `proven`, `tables` (of Rotor's program), `tables_refused` (too large), `programs`, `programs_refused`
///   (by `most_columns` or the limit on work), `cut_short` (distinct groups whose search a limit ended), `options`;
///   beside the list, `levels_left`, if a limit came before some level;
/// - `chains`: see `hierarchy_chains::figures_of`; behind those of "levels" stand those of "narrow";
/// - `search_level_time`, and `h_ilp`: `refused` (as above), `columns`, `rows`, `nodes`, `bound`, `gap`, `seconds`,
///   `time`, `ending`; times are of schedules, in the cost model's unit, and stand there if there is one.
///
///     solution s = hiremate_with(branch_and_bound)(problem, {.run = {.time_limit = std::chrono::seconds(5)}});
template <mip_backend Backend>
struct hiremate_solver {
  using options_type = hiremate_options;                ///< The options of this solver.
  static constexpr std::string_view name = "hiremate";  ///< The solver's name in tables and progress reports.
  Backend backend{};                                    ///< solves the integer programs

  /// Returns the best schedule found within the budget of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const hiremate_options& options = {}) const {
    return detail::solve_hiremate(backend, p, options);
  }
};

/// HiRemate on a backend: `hiremate_with(branch_and_bound)(problem, options)`.
template <mip_backend Backend>
[[nodiscard]] constexpr hiremate_solver<Backend> hiremate_with(Backend backend) {
  return {std::move(backend)};
}

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/hiremate/impl/hiremate.hpp"
#endif
