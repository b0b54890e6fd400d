// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/core/run.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/exact.hpp"
#include "remat/portfolio/detail/part.hpp"
#include "remat/portfolio/detail/part_setting.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/portfolio/detail/shares.hpp"
#include "remat/refine/refine.hpp"

namespace REMAT_NAMESPACE::detail {

/// `exact` without a heuristic of its own, for `goal`, within the limits of `clock`; without any, within some work.
[[nodiscard]] inline solution run_exact(const part_setting& s, const problem& p, run_clock& clock,
                                        exact_options searching, const exact_goal& goal) {
  searching.start_from_heuristic = false;
  searching.run = clock.control();
  if (!searching.run.is_limited())
    searching.run.work_limit = refine_options{}.default_moves / 4 * p.graph().num_operations;
  solution found = solve_within_memory(clock, [&] { return search_exactly(p, searching, goal); });
  clock.work(found.statistics.work);
  found.by = s.name_of(found.by);
  return found;
}

/// The exact search for schedules that close the gap. It gives up where its states close too little of it.
[[nodiscard]] inline portfolio_part exact_part(const part_setting& s) {
  const bool is_promising = s.size() <= graph_sizes::exact_promising;
  portfolio_part part;
  part.name = exact_solver::name;
  part.weight = 2;
  part.first_share = is_promising ? 0.6 : 0.1;
  part.run = [&s, is_promising](const pool_view& now, run_clock& clock) {
    exact_goal goal;
    goal.chain = now.chain;
    if (now.best.plan) {
      goal.faster_than = now.closing_bound(s.gap);
      // Other parts find better schedules. On a small graph the first states may close little of the gap, the next ones
      // much of it.
      goal.patience = is_promising ? 0.02 : 0.1;
    }
    part_slice slice{run_exact(s, now.instance, clock, {}, goal)};
    slice.ended = !may_be_cut_off(clock);
    return slice;
  };
  part.is_useful = [](const pool_view& now) { return !now.best.is_within(part_gaps::exact); };
  return part;
}

}  // namespace REMAT_NAMESPACE::detail
