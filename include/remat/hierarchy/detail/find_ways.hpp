// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/sub_solver.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/hierarchy/detail/way_cache.hpp"

namespace remat::detail {

/// How options are searched for.
struct way_search {
  std::uint32_t peaks = 3;             ///< peak budgets below the one that does not bind
  std::size_t max_budgets = 20;        ///< save budgets for each peak budget
  std::size_t max_ways = 12;           ///< of a part, spread over saved bytes
  std::uint64_t moves = 4000;          ///< work limit of the thorough solver, for each pair of budgets
  std::uint64_t solvers_key = 0;       ///< tells options of different solvers apart in the cache
  std::shared_ptr<way_cache> cache{};  ///< options are looked up and kept there; null: no cache
};

/// The options of several parts.
struct way_table {
  std::vector<std::vector<detail::sub_graph_way>> ways{};  ///< of a part, in its own indices, by falling saved bytes
  std::size_t distinct = 0;                                ///< parts that differ by more than names and times
  std::size_t reused = 0;                                  ///< of these, known from the cache
  std::size_t solves = 0;                                  ///< problems that were solved
  std::size_t proven = 0;                   ///< of these, solved to a proven optimum or proven infeasible
  std::size_t found = 0;                    ///< options of the solved parts, before any was dropped
  std::size_t kept = 0;                     ///< of these: not dominated, and within `max_ways`
  std::size_t cut_short = 0;                ///< distinct parts whose search a limit ended early
  std::uint64_t work = 0;                   ///< of all solves
  stop_reason stopped = stop_reason::none;  ///< the limit that cut the search short; `none` if no limit did
};

/// Pareto-optimal ways to run each of `parts`: keeping everything, and for each of a few peak budgets the fastest ways
/// for ever smaller save budgets, each by the thorough solver (if that ends far from its bound, also from the tight
/// solver's answer) on the part as a problem of its own. \cite zhao2023rockmate \cite gusak2025hiremate
///
/// Parts that are equal up to renaming and times are solved once, on the threads of `clock`; the answer is the same for
/// any number of them. Limits are those of `clock`: a peak budget gets an equal share of the work that is left, a part
/// one by its operations, a save budget an equal share of what its part has left, and at most `moves`. A part whose
/// work is spent has fewer options. Polls before each problem; the sub-solvers keep the time limit and the stop token
/// themselves.
template <sub_solver_set Solvers>
[[nodiscard]] way_table find_ways(std::span<const sub_graph> parts, const way_search& search, const Solvers& solvers,
                                  run_clock& clock);

}  // namespace remat::detail

#include "remat/hierarchy/impl/find_ways_template.hpp"
