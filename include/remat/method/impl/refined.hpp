// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/refined.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/method/detail/copy_states.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/impl/refinement_steps.hpp"
#include "remat/portfolio/detail/copy_parts.hpp"
#include "remat/portfolio/detail/driver.hpp"
#include "remat/portfolio/detail/part.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/portfolio/detail/shares.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE {

namespace detail::refined_solve {

inline constexpr std::size_t num_starts = 4;  // the search's starts

/// Recomputation alone, from the recomputations of the schedules that earlier parts have found.
[[nodiscard]] inline portfolio_part alone_part(copy_setting& s, const refined_options& options) {
  portfolio_part part = turn(refined_solver::name, link_shares::refined_alone, [&](run_clock& clock, solution& best) {
    refined_options alone = options;
    for (const auto& [time, state] : s.states.entries())
      alone.starts.push_back(schedule_computes(s.instance, state.computes));
    const solution found = solve_other_problem(clock, 1, refined, s.instance.without_link(), std::move(alone));
    if (found.plan)
      copy_placement(s.instance, clock, best, s.whole, s.states).place(computes_of(*found.plan), {}, "alone");
  });
  part.is_useful = [](const pool_view& now) { return !now.best.is_within(part_gaps::left_to_search); };
  return part;
}

/// Takes the turns of the parts for a problem with a link.
inline stop_reason take_turns(pool& known, const problem& p, const refined_options& options, run_clock& clock) {
  copy_setting setting{p, refined_solver::name, options.gap, copy_states(num_starts), options.starts};
  driver turns(known, options.gap);
  turns.add(listed_order_part(setting));
  turns.add(copy_bound_part(setting));
  turns.add(starts_part(setting));
  turns.add(copying_eviction_part(setting));
  turns.add(alone_part(setting, options));
  turns.add(copy_annealing_part(setting));
  return turns.run_in_turn(clock);
}

}  // namespace detail::refined_solve

REMAT_INLINE stop_reason detail::improve_by_refinement(const problem& p, solution& best, std::vector<schedule> starts,
                                                       run_clock& clock, std::string_view solver) {
  refined_options last;
  last.gap = 0;
  last.starts = std::move(starts);
  if (best.plan) last.starts.push_back(*best.plan);
  solution s = solve_part(clock, 1, refined, p, std::move(last));
  take_bound(best, s);
  if (s.plan) take_part(best, s, [&] { accept(p, best, *s.plan, by_part(solver, s.by)); });
  return clock.poll();
}

REMAT_INLINE solution refined_solver::operator()(const problem& p, const refined_options& options) const {
  require_valid_options(name, options);
  detail::require_legal_starts(p, options.starts, name);
  using steps = detail::refinement_steps;
  if (!p.link()) return steps::solve(p, options, steps::aim::schedules_and_bound);
  detail::pool known(p);
  detail::solve_by_own_method(
      p, known.answer(), name, options.run, improvement{}, {.may_copy = true},
      [&](run_clock& clock, solution&) { return detail::refined_solve::take_turns(known, p, options, clock); });
  return std::move(known.answer());
}

}  // namespace REMAT_NAMESPACE
