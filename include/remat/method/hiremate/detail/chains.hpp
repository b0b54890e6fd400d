// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "remat/chain/detail/chain_program.hpp"
#include "remat/chain/detail/chain_search.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/chain/detail/stage_ways.hpp"
#include "remat/core/run.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/method/hiremate/detail/sub_graph_ways.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace remat::detail {

/// How `hierarchy_chains` searches.
struct hierarchy_chains_options {
  sub_graph_search sub_graphs{};                     ///< who finds the options of stages
  std::uint32_t slots = 500;                         ///< parts of the memory, 1 … 2^24
  std::size_t max_stages = 150;                      ///< of a chain, at least 1
  std::int64_t table_bytes = std::int64_t{1} << 30;  ///< larger tables are not filled
  /// The largest sum of the efforts of the distinct sub-graphs that are given options. The effort of n operations is
  /// n · min(n, 200). One unit takes some 15 µs.
  std::uint64_t max_effort = 500'000;
  std::size_t finer = 8;  ///< the best chains that are solved again with four times as many slots
  double gap = 0;         ///< end with a time of at most (1 + gap) × the proven bound
};

/// Schedules of the whole graph from the chains of hierarchies: at each depth, the groups of a hierarchy are the stages
/// of a chain, and so are pairs, triples … of neighbours. Rotor's dynamic program (`chain_program`) solves each chain,
/// first with its stages as they are, then with the options of its stages, where chains whose distinct stages have the
/// fewest operations come first. Stages that are equal up to renaming and times are solved once. A large stage is
/// divided into the stages of a finer chain that has been solved before.
///
/// Work is that of `search_chain` and `find_sub_graph_ways`. Polls before each chain, and as those two do.
class hierarchy_chains {
 public:
  /// Keeps references to its arguments.
  hierarchy_chains(const problem& p, const hierarchy_chains_options& options);
  hierarchy_chains(const hierarchy_chains&) = delete;
  hierarchy_chains& operator=(const hierarchy_chains&) = delete;

  /// Adds the chains of a hierarchy. `name` is kept: it must outlive this object. With `levels` also the chains of all
  /// `cut_levels` of its line. O(size of the chains) time.
  void add(std::string_view name, const operation_hierarchy& h, bool levels = false);

  /// Adds the chains of a line (`chains_of_line`).
  void add_line(std::string_view name, const forward_line& line);

  /// Solves again, without options, the chains of `name`, with the operations of each stage in an order of little
  /// memory and sizes rounded up: for budgets where the listed order of the operations needs too much.
  void solve_narrow(std::string_view name, run_clock& clock, solution& best, std::string_view solver);

  /// Solves the chains without options. `best` takes the schedules, found by "SOLVER/NAME/chain".
  void solve_plain(run_clock& clock, solution& best, std::string_view solver);
  /// Solves the chains with the options of their stages.
  void solve_with_ways(run_clock& clock, solution& best, std::string_view solver);
  /// Solves the best chains again with more slots.
  void solve_finer(run_clock& clock, solution& best, std::string_view solver);

  /// The figures of one hierarchy: `chains`, `chains_with_ways`, `chains_left` (not solved with options because of
  /// limits), `chains_refused` (because of `max_effort`), `tables_refused` (because of `table_bytes`, those of stages
  /// included); of the search for options of its stages: `distinct` (without those known from a cache), `solves`,
  /// `tables`, `programs`, `programs_refused` and `cut_short`, as in `sub_graph_table`; of its best chain: `stages`,
  /// `distinct_stages` (with options alone), `options`, `table_time`, `flat_time`, `time`. Empty for an unknown name.
  [[nodiscard]] figures figures_of(std::string_view name) const;

 private:
  struct stage {
    sub_graph part{};
    std::uint64_t key = 0;  // fingerprint
    bool stands_alone = false, known = false;
    std::vector<sub_graph_way> ways{};
  };
  struct line_entry {
    forward_line line{};
    std::vector<std::uint32_t> order{};
    std::vector<std::size_t> solved{};  // chains with options
  };
  struct chain_entry {
    std::string_view name{};
    std::size_t line = 0;
    cut_list cuts{};
    std::vector<std::size_t> stages{};  // indices of stages_
    stage_order order = stage_order::listed;
    bool with_ways = false;
    double time = 0;  // of the best schedule
  };
  struct counts {
    std::size_t chains = 0, with_ways = 0, refused = 0, tables_refused = 0, left = 0;
    std::size_t stages = 0, distinct = 0, ways = 0;
    double table_time = 0, flat_time = 0, time = 0;
    sub_graph_table solves{};
  };

  [[nodiscard]] std::size_t line_index(const forward_line& line);
  void add_chains(std::string_view name, std::size_t line, std::vector<cut_list> chains);
  [[nodiscard]] bool is_near_bound(const solution& best) const;
  void find_stages(chain_entry& c);
  [[nodiscard]] std::size_t stage_of(std::vector<std::uint32_t> operations, sub_graph_extractor& extract);
  [[nodiscard]] std::vector<level_child> children_of(const chain_entry& c, std::size_t s, std::uint32_t begin,
                                                     std::uint32_t end) const;
  void find_ways(const chain_entry& c, run_clock& clock);
  [[nodiscard]] std::vector<std::vector<stage_way>> ways_of(const chain_entry& c) const;
  /// Distinct stages that have to be given options, as `max_effort` counts them; with `known` those that have them,
  /// too.
  [[nodiscard]] std::uint64_t effort_of(const chain_entry& c, bool known) const;
  void solve(chain_entry& c, bool with_ways, std::uint32_t slots, run_clock& clock, solution& best,
             std::string_view solver);

  const problem& p_;
  const hierarchy_chains_options& options_;
  std::vector<line_entry> lines_{};
  std::vector<chain_entry> chains_{};
  std::vector<stage> stages_{};
  std::map<std::vector<std::uint32_t>, std::size_t> stage_index_{};
  std::map<std::string_view, counts> counts_{};
  std::vector<chain_entry> good_{};  // solved chains with a schedule
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/hiremate/impl/chains.hpp"
#endif
