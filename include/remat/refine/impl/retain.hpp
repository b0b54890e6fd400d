// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/refine/detail/retain.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/moves.hpp"
#include "remat/refine/detail/retention.hpp"
#include "remat/refine/detail/timeline.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace remat::detail {

namespace retaining {

/// A recomputation and its rank, the least first: minus the time that its removal saves per byte and step.
using ranked_compute = std::pair<double, std::uint32_t>;

/// Counts work. Returns true if the search must stop.
inline bool count_work(run_clock& clock, std::uint64_t work) {
  clock.work(work);
  return clock.should_stop();
}

/// The first round: removes recomputations whose tensors fit into free memory.
inline schedule fill_free_memory(const problem& p, schedule start, run_clock& clock) {
  retention line(p, start);
  std::vector<ranked_compute> computes;
  for (std::uint32_t x = 0; x < line.size(); ++x)
    if (line.removable(x)) computes.emplace_back(-p.graph().time[line.operation(x)] / (1 + line.area(x)), x);
  std::sort(computes.begin(), computes.end());
  bool changed = false;
  for (const ranked_compute& compute : computes) {
    if (count_work(clock, work_of::visit)) break;
    changed = (line.removable(compute.second) && line.try_remove(compute.second)) || changed;
  }
  return changed ? schedule_computes(p, line.computes()) : std::move(start);
}

/// The removable computes of a timeline that was just loaded.
inline void rank_computes(const timeline& plan, std::vector<ranked_compute>& computes) {
  const flat_graph& g = plan.graph();
  computes.clear();
  for (timeline::node x = plan.next(timeline::head); x != timeline::tail; x = plan.next(x)) {
    if (!plan.removable(x)) continue;
    double area = 1;  // the nodes of a loaded timeline are numbered by their places
    for (const std::uint32_t t : g.outputs[plan.operation(x)])
      if (const std::size_t i = plan.first_event_from(t, x); i > 0)
        area += static_cast<double>(g.bytes[t]) * (x - plan.events(t)[i - 1].at);
    computes.emplace_back(-g.time[plan.operation(x)] / area, x);
  }
  std::sort(computes.begin(), computes.end());
}

}  // namespace retaining

REMAT_INLINE schedule retain(const problem& p, schedule start, run_clock& clock, const retain_options& options) {
  if (options.rounds > 0) start = detail::retaining::fill_free_memory(p, std::move(start), clock);
  if (options.rounds < 2) return start;
  timeline plan(p);
  refine_moves moves(plan, 0);
  moves.most_repairs = options.most_repairs;
  moves.must_stop = [&clock] { return detail::retaining::count_work(clock, work_of::move); };
  std::vector<detail::retaining::ranked_compute> computes;
  for (std::uint32_t round = 1; round < options.rounds && !clock.should_stop(); ++round) {
    plan.load(start);
    if (is_optimal(plan.time(), p.graph().needed_time)) break;
    detail::retaining::rank_computes(plan, computes);
    bool changed = false;
    for (const auto& compute : computes) {
      if (detail::retaining::count_work(clock, work_of::move)) break;
      changed = moves.retain(compute.second) || changed;
    }
    if (!changed) break;
    start = schedule_computes(p, plan.computes());
  }
  return start;
}

}  // namespace remat::detail
