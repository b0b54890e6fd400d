// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "remat/core/run.hpp"
#include "remat/hierarchy/detail/find_ways.hpp"
#include "remat/hierarchy/detail/sub_solver.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/method/hiremate/detail/hierarchical_ilp.hpp"
#include "remat/method/hiremate/detail/level_problem.hpp"
#include "remat/method/hiremate/detail/sub_graph_ways.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

/// The hierarchies that `hiremate` uses.
enum class hiremate_partition : std::uint8_t {
  all,          ///< all of those below, in competition
  h_partition,  ///< `h_partition`
  repeats,      ///< `partition_at_repeats`
  cuts,         ///< `partition_at_cuts`
  levels        ///< `partition_at_levels`
};

/// Who solves the top levels of hierarchies in `hiremate`.
enum class hiremate_top : std::uint8_t {
  automatic,     ///< all of those below, in competition
  rotor,         ///< Rotor's dynamic program on the chains of a hierarchy (`hierarchy_chains`)
  search_level,  ///< options by a price on saved bytes, the runs by eviction (`search_level`)
  h_ilp          ///< the hierarchical integer program (`hierarchical_ilp`)
};

/// Options of `hiremate_solver`.
struct hiremate_options {
  /// The only hierarchy to use; without one, those of `partition`.
  std::optional<operation_hierarchy> hierarchy{};
  hiremate_partition partition = hiremate_partition::all;  ///< how hierarchies are made
  std::uint32_t max_group = 20;                            ///< `partition_options::max_group`, at least 2
  std::uint32_t max_top = 30;                              ///< `partition_options::max_top`, at least 1
  hiremate_top top_solver = hiremate_top::automatic;       ///< who solves the top levels
  /// Who finds the options of sub-graphs; `automatic`: what `rule` says.
  sub_method sub_solver = sub_method::automatic;
  sub_method_rule rule{};           ///< chooses methods for each sub-graph; empty: `default_sub_methods`
  std::size_t most_options = 12;    ///< of a sub-graph
  std::size_t level_options = 100;  ///< N_o: of all sub-graphs in one group together; each has at least 2
  /// Your own solver of sub-graphs. With `thorough` set, it takes the place of `sub_solver` and `rule`.
  part_solvers solvers{};
  /// Shared by solves for several budgets, or of several graphs, with the same backend, `solvers`, `rule`,
  /// `most_columns` and `nodes`: the cache does not tell these apart.
  std::shared_ptr<option_cache> cache{};
  std::uint64_t moves = 4000;       ///< `option_search::moves`, for groups of a level that is no chain
  std::uint64_t chain_moves = 300;  ///< `option_search::moves`, for stages of chains
  std::uint32_t slots = 500;        ///< parts of the memory in Rotor's program, 1 … 2^24
  std::size_t max_stages = 150;     ///< of a chain, at least 1
  /// `hierarchy_chains_options::most_effort`
  std::uint64_t chain_effort = 500'000;
  /// Nothing more is begun once the best time exceeds the proven bound by at most this part of the bound.
  double good_enough = 1e-3;
  double most_columns = 6'000;  ///< larger integer programs are not begun
  std::uint64_t nodes = 100;    ///< of the backend's search at most, unless the only limit is one on time
  bool improve = false;         ///< improve the schedule by eviction and refinement (`improve`)
  run_control run{};            ///< Limits, seed, threads, progress.

  /// Calls `visit(name, field, text)` for each scalar option but those of `run`; `text` is one line for people.
  template <class Self, class Visit>
  static void visit_options(Self& self, Visit&& visit) {
    visit("partition", self.partition, "how hierarchies are made");
    visit("max_group", self.max_group, "M_l: most children of a group");
    visit("max_top", self.max_top, "M_t: most children of the whole graph");
    visit("top_solver", self.top_solver, "who solves the top levels");
    visit("sub_solver", self.sub_solver, "who finds the options of sub-graphs");
    visit("most_options", self.most_options, "of a sub-graph");
    visit("level_options", self.level_options, "N_o: of all sub-graphs in one group together");
    visit("moves", self.moves, "work of each pair of budgets of a sub-graph");
    visit("chain_moves", self.chain_moves, "the same, for the stages of chains");
    visit("slots", self.slots, "parts of the memory in Rotor's program");
    visit("max_stages", self.max_stages, "of a chain");
    visit("chain_effort", self.chain_effort, "largest sum of n * min(n, 200) over distinct stages of n operations");
    visit("good_enough", self.good_enough, "nothing is begun within this of the proven bound");
    visit("most_columns", self.most_columns, "larger integer programs are not begun");
    visit("nodes", self.nodes, "of the integer program's search, unless the only limit is one on time");
    visit("improve", self.improve, "improve the schedule by eviction and refinement");
  }
};

namespace detail::hierarchical {

/// H-ILP on a backend.
using level_program =
    std::function<level_solution(const level_problem&, std::int64_t budget, const hierarchical_ilp_options&)>;

/// `hiremate_solver`, for any backend.
[[nodiscard]] solution solve(const problem& p, const hiremate_options& options, const level_program& program);

}  // namespace detail::hierarchical

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
/// left. Nothing more is begun once the best schedule is within `good_enough` of the proven bound. Work is counted in
/// elementary moves of the sub-solvers, rows of tables, and expanded schedules; a node of an integer program counts
/// (columns)² / 200. For a seed and a limit on work the answer is the same for any number of threads. The bound, the
/// partitions and the narrow order are not counted. Polls before each sub-problem and each row of a table; the
/// sub-solvers poll as their headers say.
///
/// Throws `bad_argument` for a given hierarchy that is not one of the problem's graph (`check_hierarchy`), `max_group`
/// below 2, `max_top`, `slots` or `max_stages` 0, `slots` above 2^24, and `good_enough` or `most_columns` that is
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
    return detail::hierarchical::solve(p, options,
                                       [this](const detail::level_problem& level, std::int64_t budget,
                                              const detail::hierarchical_ilp_options& solving) {
                                         return hierarchical_ilp(backend, level, budget, solving);
                                       });
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
