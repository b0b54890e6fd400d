// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/hierarchy/find_options.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/hierarchy/level_problem.hpp"
#include "remat/hierarchy/sub_solver.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/mip/hierarchical_ilp.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/checkmate.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

/// Options of `hiremate_solver`.
struct hiremate_options {
  /// The only hierarchy to use. Without one, those of `h_partition`, `partition_at_repeats` and `partition_at_cuts`
  /// compete.
  std::optional<operation_hierarchy> hierarchy{};
  std::uint32_t max_group = 20;     ///< `partition_options::max_group`, at least 2
  std::uint32_t max_top = 30;       ///< `partition_options::max_top`, at least 1
  std::size_t most_options = 12;    ///< of a sub-graph
  std::size_t level_options = 100;  ///< of all sub-graphs of a level together, N_o
  /// Who solves the sub-graphs; without `thorough`, `default_part_solvers()`.
  part_solvers solvers{};
  /// Shared by solves for several budgets, or of several graphs, with the same `solvers`.
  std::shared_ptr<option_cache> cache{};
  std::uint64_t moves = 4000;  ///< `option_search::moves`
  /// The integer program of the top level is begun where the best time exceeds the proven bound by more than this, as a
  /// part of the bound.
  double good_enough = 1e-3;
  double most_columns = 6'000;  ///< larger integer programs are not begun
  std::uint64_t nodes = 100;    ///< of the backend's search at most, unless there is a limit on time
  bool refine = true;           ///< improve the schedule of all operations at the end
  run_control run{};            ///< Limits, seed, threads, progress.

  /// Calls `visit(name, field, text)` for each scalar option but those of `run`; `text` is one line for people.
  template <class Self, class Visit>
  static void visit_options(Self& self, Visit&& visit) {
    visit("max_group", self.max_group, "M_l: most children of a group");
    visit("max_top", self.max_top, "M_t: most children of the whole graph");
    visit("most_options", self.most_options, "of a sub-graph");
    visit("level_options", self.level_options, "N_o: of all sub-graphs of a level together");
    visit("moves", self.moves, "work of each pair of budgets of a sub-graph");
    visit("good_enough", self.good_enough, "no integer program within this of the proven bound");
    visit("most_columns", self.most_columns, "larger integer programs are not begun");
    visit("nodes", self.nodes, "of the integer program's search, unless there is a limit on time");
    visit("refine", self.refine, "improve the schedule of all operations at the end");
  }
};

/// Results for one hierarchy, for tables.
struct hiremate_report {
  std::string_view partition{};  ///< "given", "h_partition", "repeats" or "cuts"
  std::size_t groups = 0;        ///< sub-graphs, without the whole graph
  std::size_t distinct = 0;      ///< of these, up to renaming
  std::size_t reused = 0;        ///< of the distinct ones, from the cache
  std::size_t solves = 0;        ///< problems of sub-graphs that were solved
  std::size_t proven = 0;        ///< of these, solved to a proven optimum or proven infeasible
  std::size_t top = 0;           ///< children of the whole graph
  std::size_t top_options = 0;   ///< of all of them
  double searched = std::numeric_limits<double>::infinity();  ///< time of `search_level`'s best schedule, expanded
  double time = std::numeric_limits<double>::infinity();      ///< the same, after the integer program
};

namespace detail::hierarchical {

/// The programs that depend on the MIP backend.
struct programs {
  std::function<level_solution(const level_problem&, std::int64_t budget, const hierarchical_ilp_options&)> level{};
  std::function<solution(const problem&, const checkmate_options&)> flat{};
};

/// `hiremate_solver`, for any backend. `reports` may be null.
[[nodiscard]] solution solve(const problem& p, const hiremate_options& options, const programs& backend,
                             std::vector<hiremate_report>* reports);

}  // namespace detail::hierarchical

/// HiRemate: nested groups of operations, each distinct group solved once for many budgets, a schedule put together
/// from the options that these give, and refined. \cite gusak2025hiremate
///
/// 1. Hierarchies compete: H-Partition, repeats, cuts of fewest bytes; or one is given.
/// 2. From the bottom up, the options of each group (`find_options`): groups that are equal up to renaming (and times)
///    share them, and a cache keeps them for other budgets and graphs. A group of groups starts from the schedules that
///    its children's options give, and is then solved as a whole.
/// 3. The top level, for the true budget: options by a price on saved bytes, the runs by eviction (`search_level`), and
///    the hierarchical integer program on the backend, from the best of these, where it is small enough.
/// 4. Every schedule of the top level is expanded to operations, freed as early as possible, and checked; `refined`
///    starts from the best ones. A graph that is too small for groups goes to `checkmate`, on the same backend.
///
/// Differs from the paper: groups are solved as flat problems, mostly to the proven optimum of their budgets, where the
/// paper takes integer programs with a time limit; backwards run once in a level; eviction, TwRemat and refinement take
/// part; and the answer has a proven bound. Heuristic: `optimal` and `infeasible` come from that bound alone.
///
/// Limits: each part gets a share of the time and of the work that are left. A quarter at most goes to the options, as
/// much to the search of the top levels, a fifth to the integer programs, the rest to `refined`. Work is counted in
/// elementary moves of the sub-solvers; a node of an integer program counts (columns)² / 200. For a seed and a limit on
/// work the answer is the same for any number of threads. The bound and the partitions are not counted.
/// Polls before each sub-problem; the sub-solvers poll as their headers say.
///
/// Throws `bad_argument` for a given hierarchy that is not one of the problem's graph (`check_hierarchy`), `max_group`
/// below 2, `max_top` 0, and `good_enough` or `most_columns` that is negative or not a number.
///
/// `solution::by`: "hiremate/PARTITION/search_level" and "hiremate/PARTITION/h_ilp" for a top level,
/// "hiremate/refined/…", "hiremate/checkmate/…", "hiremate/no_remat".
///
///     solution s = hiremate_with(branch_and_bound)(problem, {.run = {.time_limit = std::chrono::seconds(5)}});
template <mip_backend Backend>
struct hiremate_solver {
  using options_type = hiremate_options;                ///< The options of this solver.
  static constexpr std::string_view name = "hiremate";  ///< The solver's name in tables and progress reports.
  Backend backend{};                                    ///< solves the integer programs

  /// Returns the best schedule found within the budget of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const hiremate_options& options = {}) const {
    return detail::hierarchical::solve(p, options, programs(), nullptr);
  }

  /// \overload
  /// `reports` receives the results for each hierarchy.
  [[nodiscard]] solution operator()(const problem& p, const hiremate_options& options,
                                    std::vector<hiremate_report>& reports) const {
    reports.clear();
    return detail::hierarchical::solve(p, options, programs(), &reports);
  }

 private:
  [[nodiscard]] detail::hierarchical::programs programs() const {
    return {[this](const level_problem& level, std::int64_t budget, const hierarchical_ilp_options& options) {
              return hierarchical_ilp(backend, level, budget, options);
            },
            [this](const problem& p, const checkmate_options& options) { return checkmate_with(backend)(p, options); }};
  }
};

/// HiRemate on a backend: `hiremate_with(branch_and_bound)(problem, options)`.
template <mip_backend Backend>
[[nodiscard]] constexpr hiremate_solver<Backend> hiremate_with(Backend backend) {
  return {std::move(backend)};
}

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/solver/impl/hiremate.hpp"
#endif
