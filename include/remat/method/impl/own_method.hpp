// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/detail/own_method.hpp"

#include "remat/core/detail/linkage.hpp"
#include "remat/method/detail/cheap_start.hpp"
#include "remat/method/refined.hpp"
#include "remat/refine/detail/retention.hpp"

namespace REMAT_NAMESPACE::detail {

REMAT_INLINE void record_own_method(solution& best) {
  if (!best.plan || best.statistics.own.find<double>("own_time")) return;
  best.statistics.own.set("own_time", best.time);
  best.statistics.own.set("own_peak_bytes", best.peak_bytes);
  best.statistics.own.set("own_by", best.by);
}

REMAT_INLINE void retain_all(const problem& p, std::span<const schedule> plans, std::uint32_t rounds, bool improves,
                             run_clock& clock, solution& best, std::string_view solver) {
  if (improves) {
    record_own_method(best);
    rounds = std::max(rounds, 3U);
  }
  if (rounds == 0) return;
  for (const schedule& plan : plans) {
    if (clock.should_stop()) return;
    accept(p, best, retain(p, plan, clock, rounds), by_part(solver, "retain"));
  }
}

REMAT_INLINE stop_reason improve(const problem& p, solution& best, std::vector<schedule> starts, run_clock& clock,
                                 std::string_view solver) {
  record_own_method(best);
  const stop_reason stopped = clock.poll();
  if (stopped != stop_reason::none || best.status == solve_status::infeasible) return stopped;
  if (best.proven && best.is_within(0)) return stopped;
  refined_options last;
  last.gap = 0;
  last.starts = std::move(starts);
  if (best.plan) last.starts.push_back(*best.plan);
  solution s = solve_part(clock, 1, refined, p, std::move(last));
  take_bound(best, s);
  if (s.plan) take_part(best, s, [&] { accept(p, best, *s.plan, by_part(solver, s.by)); });
  return clock.poll();
}

}  // namespace REMAT_NAMESPACE::detail
