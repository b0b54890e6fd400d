// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/hierarchy/detail/find_ways.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/sub_solver.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/method/hiremate/detail/hierarchical_ilp.hpp"
#include "remat/method/hiremate/detail/level_builder.hpp"
#include "remat/method/hiremate/detail/level_problem.hpp"
#include "remat/problem/problem.hpp"

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
  std::size_t like = 1;  ///< sub-graphs of this solve that are equal to it up to renaming, itself included
};

/// Chooses the methods that find options of a sub-graph; the options of all of them compete. An empty list means that
/// the sub-graph has the option that keeps everything, and no other. `automatic` in the list stands for
/// `default_sub_methods`.
using sub_method_rule = std::function<std::vector<sub_method>(const sub_graph_facts&)>;

/// The default rule: `refined` for sub-graphs of up to 200 operations, `rotor` for larger ones, and both for divided
/// sub-graphs of more than 60 operations. The two numbers were chosen after few experiments with a decoder of 40
/// layers; nobody has looked for the best ones.
[[nodiscard]] std::vector<sub_method> default_sub_methods(const sub_graph_facts& facts);

/// A sub-graph whose options are wanted.
struct sub_graph {
  detail::step_part part{};                     ///< operations and tensors
  std::vector<detail::level_child> children{};  ///< with their options; empty: not divided
};

/// How `find_sub_graph_options` searches.
struct sub_graph_search {
  std::uint32_t peaks = 3;        ///< `option_search::peaks`
  std::size_t most_options = 12;  ///< of a sub-graph
  std::uint64_t moves = 4000;     ///< `option_search::moves`
  sub_method_rule rule{};         ///< empty: `default_sub_methods`
  part_solvers solvers{};         ///< with `thorough`: takes the place of all methods
  /// H-ILP on a backend, called by several threads at once. Where it is empty, or the sub-graph is not divided, `rotor`
  /// takes the place of `h_ilp`.
  std::function<detail::level_solution(const detail::level_problem&, std::int64_t budget,
                                       const detail::hierarchical_ilp_options&)>
      program{};
  double most_columns = 6'000;  ///< of an integer program
  std::uint64_t nodes = 100;    ///< of an integer program
  /// Options are looked up in it, and those that no limit cut short are added to it. Null: no cache. It does not tell
  /// different `solvers`, `program`s or divisions of a sub-graph apart.
  std::shared_ptr<option_cache> cache{};
};

/// The options of several sub-graphs.
struct sub_graph_table {
  std::vector<std::vector<detail::part_option>>
      options{};                   ///< of a sub-graph, in its own indices, by falling saved bytes
  std::size_t distinct = 0;        ///< sub-graphs that differ by more than names and times
  std::size_t reused = 0;          ///< of these, known from the cache
  std::size_t solves = 0;          ///< problems of sub-graphs that were solved, tables included
  std::size_t proven = 0;          ///< of these, solved to a proven optimum or proven infeasible
  std::size_t tables = 0;          ///< of the solves, tables of Rotor's program
  std::size_t tables_refused = 0;  ///< tables larger than `chain_program_options::table_bytes`
  std::size_t programs = 0;        ///< of the solves, integer programs
  std::size_t refused = 0;         ///< integer programs not begun: `most_columns`, or the work left
  /// Distinct sub-graphs whose search a limit ended early. Where `find_options` ends early for one of those that it
  /// solves by one method, all of these count.
  std::size_t cut_short = 0;
};

/// Finds options of sub-graphs, each distinct one once, by the methods that the rule chooses. The answer is the same
/// for any number of threads. Limits are those of `clock`; each method gets an equal share of what is left, and of that
/// each sub-graph one by its operations. Polls before each problem of a sub-graph.
[[nodiscard]] sub_graph_table find_sub_graph_options(const flat_graph& g, std::span<const sub_graph> sub_graphs,
                                                     const sub_graph_search& search, run_clock& clock);

namespace detail::sub_graphs {

/// Work of a node of an integer program: its linear program takes time in proportion to the square of the columns.
inline constexpr double columns_squared_per_move = 200;
[[nodiscard]] inline double moves_of_node(double columns) {
  return std::max(1.0, columns * columns / columns_squared_per_move);
}
/// The nodes that `work` pays for, at most `most`.
[[nodiscard]] inline std::uint64_t nodes_within(std::uint64_t work, double moves_per_node, std::uint64_t most) {
  const double nodes = static_cast<double>(work) / moves_per_node;
  return nodes >= static_cast<double>(most) ? most : static_cast<std::uint64_t>(nodes);
}

}  // namespace detail::sub_graphs

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/hiremate/impl/sub_graph_ways.hpp"
#endif
