// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/hierarchy/way_cache.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

/// A method that finds options of a sub-graph.
enum class sub_method : std::uint8_t {
  automatic,  ///< by the rule (`sub_method_rule`)
  h_ilp,      ///< the hierarchical integer program on the children, for each pair of budgets
  rotor,      ///< Rotor's dynamic program on the children, one table for all memory sizes (`find_chain_options`)
  twremat,    ///< TwRemat on the operations, for each pair of budgets
  refined     ///< bound, eviction, refinement and exact search on the operations, for each pair of budgets
};

/// Returns the name of the enumerator.
[[nodiscard]] constexpr std::string_view to_string(sub_method m) noexcept {
  switch (m) {
    case sub_method::automatic:
      return "automatic";
    case sub_method::h_ilp:
      return "h_ilp";
    case sub_method::rotor:
      return "rotor";
    case sub_method::twremat:
      return "twremat";
    case sub_method::refined:
      return "refined";
  }
  return "unknown";
}

/// What a rule may look at when it chooses methods for a sub-graph.
struct sub_graph_facts {
  std::size_t operations = 0;          ///< forward and backward
  std::size_t forward_operations = 0;  ///< of these, in the forward
  std::size_t children = 0;            ///< sub-graphs and single operations; 0: the sub-graph is not divided
  std::size_t groups = 0;              ///< of the children, sub-graphs
  std::size_t child_options = 0;       ///< options of all children
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
  /// Your own solver of sub-graphs. If not empty, it takes the place of `sub_solver` and `rule`.
  sub_graph_solver own_sub_solver{};
  /// Shared by solves for several budgets, or of several graphs, with the same backend, `own_sub_solver`, `rule`,
  /// `most_columns` and `nodes`: the cache does not tell these apart. Null: one for this solve (`make_way_cache`).
  std::shared_ptr<way_cache> cache{};
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

}  // namespace remat
