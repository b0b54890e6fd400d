// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/mip/model.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"  // GCC 12 takes the enumerators for shadows of the solvers
/// A method that finds ways to run a sub-graph.
enum class sub_method : std::uint8_t {
  automatic,  ///< the rule says which (`sub_method_rule`)
  h_ilp,      ///< the hierarchical integer program on the children, for each pair of budgets
  rotor,      ///< Rotor's dynamic program on the children, one table for all memory sizes (`find_chain_ways`)
  twremat,    ///< TwRemat on the operations, for each pair of budgets
  refined     ///< bound, eviction, refinement and exact search on the operations, for each pair of budgets
};
#pragma GCC diagnostic pop

/// The names of the values.
template <>
struct enum_names<sub_method> {
  /// Value and name.
  static constexpr std::array<std::pair<sub_method, std::string_view>, 5> all{{{sub_method::automatic, "automatic"},
                                                                               {sub_method::h_ilp, "h_ilp"},
                                                                               {sub_method::rotor, "rotor"},
                                                                               {sub_method::twremat, "twremat"},
                                                                               {sub_method::refined, "refined"}}};
};

/// The facts by which a rule may choose methods for a sub-graph.
struct sub_graph_facts {
  std::size_t operations = 0;          ///< forward and backward
  std::size_t forward_operations = 0;  ///< those of them that are in the forward
  std::size_t children = 0;            ///< sub-graphs and single operations; 0: the sub-graph is not divided
  std::size_t groups = 0;              ///< the children that are sub-graphs
  std::size_t child_ways = 0;          ///< ways of all children
  std::size_t copies = 1;  ///< sub-graphs of this solve that are equal to it up to renaming, itself included
};

/// Chooses the methods that find ways to run a sub-graph; the ways of all of them compete. An empty list means that
/// the sub-graph has the way that keeps everything, and no other. `automatic` in the list stands for
/// `default_sub_methods`.
using sub_method_rule = std::function<std::vector<sub_method>(const sub_graph_facts&)>;

/// The default rule: `refined` for sub-graphs of up to 200 operations, `rotor` for larger ones, and both for divided
/// sub-graphs of more than 60 operations. The two numbers were chosen after few experiments with a decoder of 40
/// layers; nobody has looked for the best ones.
[[nodiscard]] inline std::vector<sub_method> default_sub_methods(const sub_graph_facts& facts) {
  if (facts.operations > 200) return {sub_method::rotor};
  if (facts.operations > 60 && facts.groups > 0) return {sub_method::rotor, sub_method::refined};
  return {sub_method::refined};
}

/// A solver of the user's for sub-graphs: `solve(problem, starts, run)`, with schedules to begin with (those that do
/// not fit the budget are to be ignored). It keeps the limits of `run`, may be called by several threads at once, and
/// calls no progress callback. Of its answer the schedule, the bound and the work are used. If it throws, that answer
/// is left out, and the message of `hiremate` has the reason.
using sub_graph_solver =
    std::function<solution(const problem& p, std::span<const schedule> starts, const run_control& run)>;

/// The hierarchies that `hiremate` uses.
enum class hiremate_partition : std::uint8_t {
  all,          ///< all of those below, in competition
  h_partition,  ///< `h_partition`
  repeats,      ///< `partition_at_repeats`
  cuts,         ///< `partition_at_cuts`
  levels        ///< `partition_at_levels`
};

/// The names of the values.
template <>
struct enum_names<hiremate_partition> {
  /// Value and name.
  static constexpr std::array<std::pair<hiremate_partition, std::string_view>, 5> all{
      {{hiremate_partition::all, "all"},
       {hiremate_partition::h_partition, "h_partition"},
       {hiremate_partition::repeats, "repeats"},
       {hiremate_partition::cuts, "cuts"},
       {hiremate_partition::levels, "levels"}}};
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"  // GCC 12 takes the enumerators for shadows of the solvers
/// The solver of the top levels of hierarchies in `hiremate`.
enum class hiremate_top : std::uint8_t {
  automatic,     ///< all of those below, in competition
  rotor,         ///< Rotor's dynamic program on the chains of a hierarchy (`hierarchy_chains`)
  search_level,  ///< ways by a price on saved bytes, the runs by eviction (`search_level`)
  h_ilp          ///< the hierarchical integer program (`hierarchical_ilp`)
};
#pragma GCC diagnostic pop

/// The names of the values.
template <>
struct enum_names<hiremate_top> {
  /// Value and name.
  static constexpr std::array<std::pair<hiremate_top, std::string_view>, 4> all{
      {{hiremate_top::automatic, "automatic"},
       {hiremate_top::rotor, "rotor"},
       {hiremate_top::search_level, "search_level"},
       {hiremate_top::h_ilp, "h_ilp"}}};
};

/// Options of `hiremate_solver`.
struct hiremate_options {
  /// The only hierarchy to use; without one, those of `partition`.
  std::optional<operation_hierarchy> hierarchy{};
  /// \name Settings (`records` says what they are)
  /// @{
  hiremate_partition partition = hiremate_partition::all;
  std::uint32_t max_group = 20;
  std::uint32_t max_top = 30;
  hiremate_top top_solver = hiremate_top::automatic;
  sub_method sub_solver = sub_method::automatic;
  std::size_t max_ways = 12;
  std::size_t level_ways = 100;
  std::uint64_t moves = 4000;
  std::uint64_t chain_moves = 300;
  std::uint32_t slots = 500;
  std::size_t max_stages = 150;
  std::uint64_t chain_effort = 500'000;
  double gap = default_gap;
  double max_columns = 6'000;
  std::uint64_t nodes = 100;
  /// @}
  sub_method_rule rule{};  ///< chooses methods for each sub-graph; empty: `default_sub_methods`
  /// A solver of sub-graphs of your own. If not empty, it takes the place of `sub_solver` and `rule`.
  sub_graph_solver own_sub_solver{};
  /// Shared by solves for several budgets, or of several graphs, with the same backend, `own_sub_solver`, `rule`,
  /// `max_columns` and `nodes`: the cache does not tell these apart. Null: one for this solve (`make_way_cache`).
  std::shared_ptr<way_cache> cache{};
  improvement improve{};  ///< the improvement after the own method: none, or `by_refinement` (remat/method/refined.hpp)
  run_control run{};      ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() {
    using o = hiremate_options;
    return std::tuple{
        option("partition", &o::partition, "Hierarchies are made in this way.")
            .fast(hiremate_partition::cuts)
            .paper(hiremate_partition::h_partition),
        option("max_group", &o::max_group, "M_l: a group has at most so many children.").from(2),
        option("max_top", &o::max_top, "M_t: the whole graph has at most so many children.").from(1),
        option("top_solver", &o::top_solver, "This solver solves the top levels.")
            .fast(hiremate_top::rotor)
            .paper(hiremate_top::h_ilp),
        option("sub_solver", &o::sub_solver,
               "This solver finds the ways of sub-graphs; automatic: the rule chooses it.")
            .paper(sub_method::h_ilp),
        option("max_ways", &o::max_ways, "A sub-graph has at most so many ways."),
        option("level_ways", &o::level_ways,
               "N_o: all sub-graphs in one group together have so many ways; each has at least 2."),
        option("moves", &o::moves,
               "In a level that is no chain, the search within each pair of budgets of a sub-graph makes at most so "
               "many moves.")
            .fast(1'000),
        option("chain_moves", &o::chain_moves, "The stages of chains get so many moves instead.").fast(100),
        option("slots", &o::slots, "Memory is counted in so many slots.").from(1).to(1 << 24).fast(200),
        option("max_stages", &o::max_stages, "A chain has at most so many stages.").from(1).fast(50),
        option("chain_effort", &o::chain_effort,
               "The sum of n · min(n, 200) over distinct stages of n operations is at most this.")
            .fast(100'000),
        option("gap", &o::gap, "Begin nothing with a time of at most (1 + gap) × the proven bound.").from(0).fast(0.01),
        option("max_columns", &o::max_columns, "Integer programs with more columns are not begun.").from(0),
        option("nodes", &o::nodes,
               "Unless the only limit is one on time, the search in an integer program has at most so many nodes.")};
  }
};

namespace detail {

/// The body of `hiremate_solver`, for a backend of any type.
[[nodiscard]] solution solve_hiremate(mip_backend_ref backend, const problem& p, const hiremate_options& options);

/// How other processes find ways of groups. `backend`, which must outlive it, solves the integer programs.
[[nodiscard]] piece_kind portable_group_ways(mip_backend_ref backend);

}  // namespace detail

/// HiRemate: nested groups of operations, each distinct group solved once for many budgets, and a schedule put together
/// from the ways that these give. \cite gusak2025hiremate
///
/// 1. Hierarchies compete: H-Partition, repeats, cuts of fewest bytes, Rotor's levels of cuts; or one is given.
/// 2. Chains: at each depth the groups of a hierarchy are the stages of a chain. Rotor's dynamic program over the
///    ways of the stages gives the schedules for all budgets (`hierarchy_chains`). The levels of cuts of a narrow
///    order of the forward operations are chains as well, if there are at most 20,000 of these.
/// 3. From the bottom up, the ways of each group, within a grid of peak and save budgets: by H-ILP, Rotor's program,
///    TwRemat or `refined` on the sub-graph, as the rule says (`find_sub_graph_ways`). Groups that are equal up to
///    renaming (and times) share them, and a cache keeps them for other budgets and graphs.
/// 4. The top level, for the true budget: ways by a price on saved bytes, the runs by eviction (`search_level`), and
///    the hierarchical integer program on the backend, from the best of these, if it is small enough. A graph
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
/// Limits: each part gets a share of the time and of the work that are left: a quarter the chains without ways, half
/// the chains with ways, a quarter their finer tables; of the rest, each hierarchy equally, a third the ways
/// (three fifths for `top_solver = h_ilp`), a third the search of the top level, and the integer programs all that is
/// left. Nothing more is begun once the best schedule is within `gap` of the proven bound. Work: that of
/// the sub-solvers and of the backend, rows of tables, and operations of expanded schedules; an integer program is not
/// begun if its first linear program is likely to take more than is left. For a seed and a limit on work the answer is
/// the same for any number of threads. The bound, the partitions and the narrow order are not counted. Polls before
/// each sub-problem and each row of a table; the sub-solvers poll as their headers say.
///
/// Throws `bad_argument` for a given hierarchy that is not one of the problem's graph (`check_hierarchy`), `max_group`
/// below 2, `max_top`, `slots` or `max_stages` 0, `slots` above 2^24, and `gap` or `max_columns` that is
/// negative or not a number.
///
/// With a link, this method solves several graphs without one: the problem without copies; graphs in which each tensor
/// that the choice of `offload_bound` has on the host is split in two, and a copy back is an operation that takes what
/// the bound charges for it, so that ways of groups copy, too; and the problem without copies for larger budgets. The
/// copies of each sequence of computes are then placed, and the engines simulated. With `improve`, simulated annealing
/// of recomputation and copies together follows, as in `offload`. A given hierarchy serves the graphs without copies.
/// The figures are those of the graph of the answer.
///
/// `solution::by`: "hiremate/PARTITION/chain" for Rotor's program, "hiremate/PARTITION/search_level" and
/// "hiremate/PARTITION/h_ilp" for a top level, where PARTITION is "h_partition", "repeats", "cuts", "levels" or
/// "given", and for chains also "narrow"; "hiremate/no_remat"; with `improve` also "hiremate/refined/…". With a link
/// "hiremate", "hiremate/listed" for the listed order with copies, and with `improve` "hiremate/copies".
///
/// Figures (`statistics.own`): `hierarchies`, a list, one for each hierarchy:
/// - `partition`, `groups`, `depth`, `top` (children of the whole graph), `top_ways` (of all of them), and
///   `chains_alone` if "levels" has too many children for a top level;
/// - `levels`, from the deepest up: `depth`, `groups`, `distinct` (up to renaming), `reused` (of these, from a cache),
///   `solves`, `proven`, `tables` (of Rotor's program), `tables_refused` (too large), `programs`, `programs_refused`
///   (by `max_columns` or the limit on work), `cut_short` (distinct groups whose search a limit ended), `ways`;
///   beside the list, `levels_left`, if a limit came before some level;
/// - `chains`: see `chain_counts::to_figures`; behind those of "levels" stand those of "narrow";
/// - `search_level_time`, and `h_ilp`: `refused` (as above), `columns`, `rows`, `nodes`, `bound`, `gap`, `seconds`,
///   `time`, `ending`; times are of schedules, in the cost model's unit, and stand there if there is one.
/// If the backend failed (`mip_backend_ref::solve`): `backend_failures`, their number, and `backend_failure`, the first
/// one, which the message tells, too. If `own_sub_solver` threw: `sub_solver_failures` and `sub_solver_failure`, alike.
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

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/hiremate/impl/hiremate.hpp"
#endif
