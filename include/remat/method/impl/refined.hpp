// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/refined.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "remat/bound/offload.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/method/detail/cheap_start.hpp"
#include "remat/method/detail/copy_annealing.hpp"
#include "remat/method/detail/copy_floor.hpp"
#include "remat/method/detail/copy_states.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/impl/copying_eviction.hpp"
#include "remat/method/impl/refinement_steps.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/portfolio/detail/shares.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/detail/run_to_end.hpp"

namespace REMAT_NAMESPACE {

namespace detail::refined_solve {

inline constexpr std::size_t num_starts = 4;  // the search's starts

/// Refines a problem with a link: eviction that drops or copies, then the search that changes recomputation and copies
/// together.
inline stop_reason refine_with_copies(const problem& p, const refined_options& options, run_clock& clock,
                                      solution& best) {
  copy_states states(p, num_starts, clock, best, refined_solver::name);
  states.place_listed_order();
  const offload_bound_result floor = floor_within(p, clock, floor_share, floor_branch_nodes(p));
  if (take_floor(p, floor, clock, best)) return clock.poll();
  for (const schedule& s : options.starts) states.place(computes_of(s), {}, "start");
  if (best.is_within(options.gap)) return clock.poll();
  {
    run_clock part = clock.part(link_shares::eviction, evict_solver::name);
    run_copying_eviction(p, floor, {}, part, best, states, evict_solver::name);
  }
  if (!best.is_within(std::max(options.gap, part_gaps::left_to_search))) {
    refined_options alone = options;
    for (const auto& [time, state] : states.entries()) alone.starts.push_back(schedule_computes(p, state.computes));
    const solution s = solve_part(clock, link_shares::refined_alone, refined, p.without_link(), std::move(alone));
    if (s.plan) states.place(computes_of(*s.plan), {}, "alone");
  }
  anneal_copies(p, states.states(), options.gap, clock, best, refined_solver::name);
  return clock.poll();
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
  run_clock clock(options.run, name);
  require_valid_options(name, options);
  if (p.link()) {
    detail::require_legal_starts(p, options.starts, name);
    return detail::solve_by_own_method(p, name, options.run, improvement{}, {.may_copy = true},
                                       [&](run_clock& within, solution& best) {
                                         return detail::refined_solve::refine_with_copies(p, options, within, best);
                                       });
  }
  detail::pool known(p);
  detail::refinement_steps steps(known, options);
  solution& best = known.answer();
  clock.watch(best.time, best.lower_bound);
  detail::run_to_end(p, best, clock, [&] {
    stop_reason stopped = steps.open(clock);
    if (stopped == stop_reason::none) stopped = steps.go_on(clock);
    detail::take_cheap_start(p, best, name, options.run, stopped);
    return stopped;
  });
  return std::move(best);
}

}  // namespace REMAT_NAMESPACE
