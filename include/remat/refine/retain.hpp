// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/moves.hpp"
#include "remat/refine/retention.hpp"
#include "remat/refine/timeline.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace remat {

struct retain_options {
  /// Rounds over all recomputations. The first spends free memory only; the later ones also make room, by dropping what
  /// is cheaper to compute again.
  std::uint32_t rounds = 3;
  std::size_t most_repairs = 12;  ///< tensors dropped to make room for one that is held
  double enough = 0;              ///< a time: with that little, it ends
};

/// Spends the memory that a schedule leaves: tensors are held across an interval in place of being computed again at
/// its end, wherever that fits `p`'s budget, most time saved per byte and step first.
///
/// Precondition: `start` is legal, tidy (`schedule_computes`) and within the budget of `p`. Returns a schedule that is
/// legal, within the budget and not slower. O(rounds · recomputations · length of the intervals); deterministic. Polls
/// before each recomputation.
[[nodiscard]] inline schedule retain(const problem& p, schedule start, run_clock& clock,
                                     const retain_options& options = {}) {
  const flat_graph& s = p.graph();
  std::vector<std::pair<double, std::uint32_t>> runs;
  if (options.rounds > 0) {
    retention line(p, start);
    for (std::uint32_t x = 0; x < line.size(); ++x)
      if (line.removable(x)) runs.emplace_back(-s.time[line.operation(x)] / (1 + line.area(x)), x);
    std::sort(runs.begin(), runs.end());
    bool changed = false;
    for (const auto& run : runs) {
      clock.work();
      if (clock.should_stop()) break;
      changed = (line.removable(run.second) && line.try_remove(run.second)) || changed;
    }
    if (changed) start = schedule_computes(p, line.computes());
  }
  if (options.rounds < 2) return start;
  timeline plan(p);
  refine_moves moves(plan, 0);
  moves.most_repairs = options.most_repairs;
  moves.must_stop = [&clock] {
    clock.work();
    return clock.should_stop();
  };
  for (std::uint32_t round = 1; round < options.rounds && !clock.should_stop(); ++round) {
    plan.load(start);
    if (plan.time() <= options.enough) break;
    runs.clear();
    for (timeline::node x = plan.next(timeline::head); x != timeline::tail; x = plan.next(x)) {
      if (!plan.removable(x)) continue;
      double area = 1;  // freshly loaded nodes are numbered by their places
      for (const std::uint32_t t : s.outputs[plan.operation(x)])
        if (const std::size_t i = plan.first_event_from(t, x); i > 0)
          area += static_cast<double>(s.bytes[t]) * (x - plan.events(t)[i - 1].at);
      runs.emplace_back(-s.time[plan.operation(x)] / area, x);
    }
    std::sort(runs.begin(), runs.end());
    bool changed = false;
    for (const auto& run : runs) {
      clock.work();
      if (clock.should_stop()) break;
      changed = moves.retain(run.second) || changed;
    }
    if (!changed) break;
    start = schedule_computes(p, plan.computes());
  }
  return start;
}

}  // namespace remat
