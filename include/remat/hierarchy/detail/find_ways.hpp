// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/sub_solver.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat {

/// Options of parts that have been solved before: for other budgets of the same graph, or for other graphs. May be used
/// by several threads at once.
class option_cache {
 public:
  /// The settings on which options depend, beside the part: those of `option_search`, the seed, and a key of the
  /// solvers.
  using settings = std::tuple<std::uint32_t, std::size_t, std::size_t, std::uint64_t, std::uint64_t, std::uint64_t>;

  /// The options of a known part that is equal to `runs.part()` up to renaming and times, measured for `runs`. Nothing
  /// for an unknown part.
  [[nodiscard]] std::optional<std::vector<detail::part_option>> find(const detail::part_runs& runs,
                                                                     const settings& with) const;
  /// Keeps the options of `part`, and a copy of it.
  void add(const detail::step_part& part, const settings& with, std::vector<detail::part_option> options);
  /// The number of parts.
  [[nodiscard]] std::size_t size() const;

  /// The test of equality: times are not compared, since no two measured times are equal. An option of a part is good
  /// for another part with about the same times; it is measured anew there.
  [[nodiscard]] static detail::isomorphism_options likeness();

 private:
  struct entry {
    std::shared_ptr<const detail::step_part> part;
    settings with;
    std::vector<detail::part_option> options;
  };
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::vector<entry>> entries_;
};

/// How options are searched for.
struct option_search {
  std::uint32_t peaks = 3;        ///< peak budgets below the one that does not bind
  std::size_t most_budgets = 20;  ///< save budgets for each peak budget
  std::size_t most_options = 12;  ///< of a part, spread over saved bytes
  std::uint64_t moves = 4000;     ///< work limit of the thorough solver, for each pair of budgets
  part_solvers
      solvers{};  ///< who solves the parts; `default_part_solvers()` in `method/rockmate/detail/sub_solvers.hpp`
  std::uint64_t solvers_key = 0;          ///< tells options of different solvers apart in the cache
  std::shared_ptr<option_cache> cache{};  ///< options are looked up and kept there; null: no cache
  /// Schedules of `part_runs::problem_within(peak, save)` to start from, for part i: from a hierarchy below. It counts
  /// its work on the clock, and stops when that says so. Called by several threads at once, for different parts.
  std::function<std::vector<schedule>(std::size_t i, const detail::part_runs&, std::int64_t peak, std::int64_t save,
                                      run_clock&)>
      starts{};
  run_control run{};  ///< only `stop`, `seed` and `threads` are used; the clock of `find_options` has the limits
};

/// The options of several parts.
struct option_table {
  std::vector<std::vector<detail::part_option>> options{};  ///< of a part, in its own indices, by falling saved bytes
  std::size_t distinct = 0;                                 ///< parts that differ by more than names and times
  std::size_t reused = 0;                                   ///< of these, known from the cache
  std::size_t solves = 0;                                   ///< problems that were solved
  std::size_t proven = 0;                   ///< of these, solved to a proven optimum or proven infeasible
  std::size_t found = 0;                    ///< options of the solved parts, before any was dropped
  std::size_t kept = 0;                     ///< of these: not dominated, and within `most_options`
  std::size_t cut_short = 0;                ///< distinct parts whose search a limit ended early
  std::uint64_t work = 0;                   ///< elementary moves of all solves
  stop_reason stopped = stop_reason::none;  ///< the limit that cut the search short; `none` if no limit did
};

/// Pareto-optimal ways to run each of `parts`: keeping everything, and for each of a few peak budgets the fastest ways
/// for ever smaller save budgets, each by the thorough solver (far from its bound, from the tight solver's answer as
/// well) on the part as a problem of its own. \cite zhao2023rockmate \cite gusak2025hiremate
///
/// Parts that are equal up to renaming and times are solved once, on `search.run.threads` threads; the answer is the
/// same for any number of them. Limits are those of `clock`: a peak budget gets an equal share of the work that is
/// left, a part one by its operations, a save budget an equal share of what its part has left, and at most `moves`. A
/// part whose work is spent has fewer options. Polls before each problem; the sub-solvers keep the time limit and the
/// stop token themselves. Throws `bad_argument` without a thorough solver.
[[nodiscard]] option_table find_options(std::span<const detail::step_part> parts, const option_search& search,
                                        run_clock& clock);

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/hierarchy/impl/find_ways.hpp"
#endif
