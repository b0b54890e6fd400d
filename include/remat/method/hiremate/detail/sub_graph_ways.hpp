// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/method/hiremate/detail/level_builder.hpp"
#include "remat/method/hiremate_options.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/problem/problem.hpp"

namespace remat::detail {

/// A sub-graph whose options are wanted.
struct divided_sub_graph {
  sub_graph part{};                     ///< operations and tensors
  std::vector<level_child> children{};  ///< with their options; empty: not divided
};

/// How `find_sub_graph_ways` searches.
struct sub_graph_search {
  std::uint32_t peaks = 3;        ///< `way_search::peaks`
  std::size_t max_ways = 12;      ///< of a sub-graph
  std::uint64_t moves = 4000;     ///< `way_search::moves`
  sub_method_rule rule{};         ///< empty: `default_sub_methods`
  sub_graph_solver own_solver{};  ///< if not empty, takes the place of all methods
  /// Solves H-ILP, on several threads at once. Without it, or if the sub-graph is not divided, `rotor` takes the place
  /// of `h_ilp`.
  std::optional<mip_backend_ref> backend{};
  double max_columns = 6'000;  ///< of an integer program
  std::uint64_t nodes = 100;   ///< of an integer program
  /// Options are looked up in it, and those that no limit cut short are added to it. Null: no cache. It does not tell
  /// different solvers, backends or divisions of a sub-graph apart.
  std::shared_ptr<way_cache> cache{};
};

/// The options of several sub-graphs.
struct sub_graph_table {
  std::vector<std::vector<sub_graph_way>> ways{};  ///< of a sub-graph, in its own indices, by falling saved bytes
  std::size_t distinct = 0;                        ///< sub-graphs that differ by more than names and times
  std::size_t reused = 0;                          ///< of these, known from the cache
  std::size_t solves = 0;                          ///< problems of sub-graphs that were solved, tables included
  std::size_t proven = 0;                          ///< of these, solved to a proven optimum or proven infeasible
  std::size_t tables = 0;                          ///< of the solves, tables of Rotor's program
  std::size_t tables_refused = 0;                  ///< tables larger than `chain_program_options::table_bytes`
  std::size_t programs = 0;                        ///< of the solves, integer programs
  std::size_t refused = 0;                         ///< integer programs not begun: `max_columns`, or the work left
  /// Distinct sub-graphs whose search a limit ended early. Where `find_ways` ends early for one of those that it
  /// solves by one method, all of these count.
  std::size_t cut_short = 0;
};

/// Finds options of sub-graphs, each distinct one once, by the methods that the rule chooses. The answer is the same
/// for any number of threads. Limits are those of `clock`; each method gets an equal share of what is left, and of that
/// each sub-graph one by its operations. Polls before each problem of a sub-graph.
[[nodiscard]] sub_graph_table find_sub_graph_ways(const flat_graph& g, std::span<const divided_sub_graph> sub_graphs,
                                                  const sub_graph_search& search, run_clock& clock);

/// Columns² of an integer program that a unit of work pays for: its first linear program takes time in proportion to
/// the square of the columns, or more.
inline constexpr double columns_squared_per_work = 12.5;

/// True if the limit on work pays for the first linear program of an integer program.
[[nodiscard]] inline bool pays_for_program(const run_control& run, double columns) noexcept {
  return run.work_limit == run_control::no_work_limit ||
         columns * columns <= static_cast<double>(run.work_limit) * columns_squared_per_work;
}

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/hiremate/impl/sub_graph_ways.hpp"
#endif
