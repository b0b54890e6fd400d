// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/detail/improve.hpp"

#include <algorithm>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/run.hpp"
#include "remat/method/refined.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/detail/parts.hpp"

namespace remat::detail {

REMAT_INLINE run_control limits_of_own_method(run_clock& clock, bool is_improved) {
  run_control own = clock.part(is_improved ? share_of_own_method : 1.0);
  if (clock.control().on_progress) own.on_progress = [&clock](const progress& news) { clock.report(news); };
  return own;
}

REMAT_INLINE void record_own_method(solution& best) {
  if (!best.plan || best.statistics.own.find<double>("own_time")) return;
  best.statistics.own.set("own_time", best.time);
  best.statistics.own.set("own_peak_bytes", best.peak_bytes);
  best.statistics.own.set("own_by", best.by);
}

REMAT_INLINE stop_reason improve(const problem& p, solution& best, std::vector<schedule> starts, run_clock& clock,
                                 std::string_view solver) {
  record_own_method(best);
  stop_reason stopped = clock.poll();
  if (stopped != stop_reason::none || best.status == solve_status::infeasible) return stopped;
  if (best.plan && best.proven && is_optimal(best.time, best.lower_bound)) return stopped;
  refined_options last;
  last.starts = std::move(starts);
  if (best.plan) last.starts.push_back(*best.plan);
  last.run = clock.part(1);
  last.run.on_progress = relay_progress(solver, clock, best);
  solution s = refined(p, last);
  clock.work(s.statistics.work);
  best.lower_bound = std::max(best.lower_bound, s.lower_bound);
  best.proven = best.proven || s.proven;
  if (s.status == solve_status::infeasible) {
    best.message = std::move(s.message);
    best.obstacle = s.obstacle;
  }
  if (s.plan) accept(p, best, std::move(*s.plan), by_part(solver, s.by));
  return clock.poll();
}

}  // namespace remat::detail
