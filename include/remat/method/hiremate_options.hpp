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
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

/// A method that finds options of a sub-graph.
enum class sub_method : std::uint8_t {
  automatic,  ///< by the rule (`sub_method_rule`)
  h_ilp,      ///< the hierarchical integer program on the children, for each pair of budgets
  rotor,      ///< Rotor's dynamic program on the children, one table for all memory sizes (`find_chain_ways`)
  twremat,    ///< TwRemat on the operations, for each pair of budgets
  refined     ///< bound, eviction, refinement and exact search on the operations, for each pair of budgets
};

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

/// What a rule may look at when it chooses methods for a sub-graph.
struct sub_graph_facts {
  std::size_t operations = 0;          ///< forward and backward
  std::size_t forward_operations = 0;  ///< of these, in the forward
  std::size_t children = 0;            ///< sub-graphs and single operations; 0: the sub-graph is not divided
  std::size_t groups = 0;              ///< of the children, sub-graphs
  std::size_t child_ways = 0;          ///< options of all children
  std::size_t copies = 1;  ///< sub-graphs of this solve that are equal to it up to renaming, itself included
};

/// Chooses the methods that find options of a sub-graph; the options of all of them compete. An empty list means that
/// the sub-graph has the option that keeps everything, and no other. `automatic` in the list stands for
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
/// calls no progress callback. Of its answer the schedule, the bound and the work are used.
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

/// Who solves the top levels of hierarchies in `hiremate`.
enum class hiremate_top : std::uint8_t {
  automatic,     ///< all of those below, in competition
  rotor,         ///< Rotor's dynamic program on the chains of a hierarchy (`hierarchy_chains`)
  search_level,  ///< options by a price on saved bytes, the runs by eviction (`search_level`)
  h_ilp          ///< the hierarchical integer program (`hierarchical_ilp`)
};

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
  double gap = 1e-3;
  double max_columns = 6'000;
  std::uint64_t nodes = 100;
  bool improve = false;
  /// @}
  sub_method_rule rule{};  ///< chooses methods for each sub-graph; empty: `default_sub_methods`
  /// A solver of sub-graphs of your own. If not empty, it takes the place of `sub_solver` and `rule`.
  sub_graph_solver own_sub_solver{};
  /// Shared by solves for several budgets, or of several graphs, with the same backend, `own_sub_solver`, `rule`,
  /// `max_columns` and `nodes`: the cache does not tell these apart. Null: one for this solve (`make_way_cache`).
  std::shared_ptr<way_cache> cache{};
  run_control run{};  ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() {
    using o = hiremate_options;
    return std::tuple{
        option("partition", &o::partition, "how hierarchies are made")
            .fast(hiremate_partition::cuts)
            .paper(hiremate_partition::h_partition),
        option("max_group", &o::max_group, "M_l: children of a group at most").from(2),
        option("max_top", &o::max_top, "M_t: children of the whole graph at most").from(1),
        option("top_solver", &o::top_solver, "who solves the top levels")
            .fast(hiremate_top::rotor)
            .paper(hiremate_top::h_ilp),
        option("sub_solver", &o::sub_solver, "who finds the ways of sub-graphs; automatic: the rule says")
            .paper(sub_method::h_ilp),
        option("max_ways", &o::max_ways, "of a sub-graph, at most"),
        option("level_ways", &o::level_ways, "N_o: of all sub-graphs in one group together; each has at least 2"),
        option("moves", &o::moves, "work of each pair of budgets of a sub-graph in a level that is no chain")
            .fast(1'000),
        option("chain_moves", &o::chain_moves, "the same, for the stages of chains").fast(100),
        option("slots", &o::slots, "that memory is counted in").from(1).to(1 << 24).fast(200),
        option("max_stages", &o::max_stages, "of a chain").from(1).fast(50),
        option("chain_effort", &o::chain_effort, "largest sum of n · min(n, 200) over distinct stages of n operations")
            .fast(100'000),
        option("gap", &o::gap, "begin nothing with a time of at most (1 + gap) × the proven bound").from(0).fast(0.01),
        option("max_columns", &o::max_columns, "of the largest integer program that is begun").from(0),
        option("nodes", &o::nodes, "of the search in an integer program, unless the only limit is one on time"),
        option("improve", &o::improve, "improve the schedule by eviction and refinement")};
  }
};

}  // namespace remat
