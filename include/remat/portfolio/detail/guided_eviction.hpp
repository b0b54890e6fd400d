// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/bound/detail/moment_fill.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/evict.hpp"
#include "remat/portfolio/detail/part_setting.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/portfolio/detail/shares.hpp"

namespace REMAT_NAMESPACE::detail {

/// Eviction that holds on to what a bound at one moment keeps, for the opening of a portfolio.
class guided_eviction {
 public:
  /// `bound`: for the whole budget, with `saved`. All must outlive the object.
  guided_eviction(const part_setting& s, pool& known, const turnaround_result& bound, run_clock& clock)
      : s_(s), pool_(known), bound_(bound), clock_(clock) {}

  /// Plain eviction; then around choices and fillings. Polls between them.
  void run() {
    // Nothing can be refined without a schedule: the first one gets all of the limits. On large graphs, a schedule to
    // start from is most often the work of a plain `evict`, which would take as long again.
    if (!pool_.best().plan)
      evict_with(clock_, 1, {});
    else if (!is_large())
      evict_with(clock_, opening_shares::eviction, {});
    if (is_large() && evict_around_fillings()) return;
    evict_around_choices();
    if (!is_large()) evict_around_fillings();
  }

 private:
  static constexpr double no_time = std::numeric_limits<double>::infinity();

  [[nodiscard]] bool is_large() const noexcept { return s_.size() > graph_sizes::quick_eviction; }
  [[nodiscard]] bool meets_bound() const noexcept { return pool_.best().is_within(s_.gap); }
  [[nodiscard]] std::int64_t part_of_budget(double room) const {
    return static_cast<std::int64_t>(room * static_cast<double>(s_.instance.budget()));
  }

  /// Returns the time of the schedule; infinite if there is none.
  double evict_with(run_clock& clock, double share, evict_options options) {
    solution s = solve_part(clock, share, evict, pool_.instance(), std::move(options));
    if (!s.plan) return no_time;
    s.by = s_.name_of(s.by);
    pool_.put(s);
    return s.time;
  }

  /// Returns the time of the schedule of eviction that holds `keep`; infinite if there is none.
  double evict_holding(std::vector<tensor_id> keep, run_clock& clock) {
    evict_options guided;
    guided.insist = false;
    guided.keep = std::move(keep);
    return evict_with(clock, opening_shares::guided, std::move(guided));
  }

  /// The bound for a part of the budget, from 0 to 1.
  [[nodiscard]] turnaround_result bound_for(double room, run_clock& clock, bool want_saved) {
    if (room == 1) return bound_;
    turnaround_options guiding;
    guiding.want_saved = want_saved;
    guiding.run = clock.limits(opening_shares::guided);
    turnaround_result found = s_.analysis.bound(part_of_budget(room), guiding);
    count_flows(found.flows, s_.size(), clock);
    return found;
  }

  /// Holds what the bound's choice keeps, for the budget and for somewhat smaller ones.
  void evict_around_choices() {
    for (const double room : {1.0, 0.95, 0.9, 0.8}) {
      if (meets_bound() || clock_.should_stop()) break;
      turnaround_result guide = bound_for(room, clock_, true);
      if (guide.infeasible) break;
      evict_holding(std::move(guide.saved), clock_);
    }
  }

  /// Holds choices that fill a part of the budget at the bound's moment. The recomputations need the rest: how much is
  /// found by trial, in steps that become smaller. True: a schedule was found.
  bool evict_around_fillings() {
    if (bound_.recomputation <= 0) return false;
    run_clock all = clock_.part(is_large() ? opening_shares::large_fillings : opening_shares::fillings);
    moment_cut cut(s_.instance.graph());
    double best_room = 0, least = no_time;
    const auto is_over = [&] { return meets_bound() || all.should_stop(); };
    const auto attempt = [&](double room) {
      const double time = evict_around_filling(room, cut, all);
      if (time >= least) return false;
      least = time;
      best_room = room;
      return true;
    };
    for (const double room : {1.0, 0.98, 0.95, 0.9, 0.8}) {
      if (is_over()) break;
      if (!attempt(room) && best_room > 0) break;
    }
    if (best_room == 0 || best_room == 1) return best_room > 0;
    for (double step = (1 - best_room) / 4; step > 0.002 && !is_over(); step /= 2)
      if (!attempt(best_room + step) && !is_over()) attempt(best_room - step);
    return true;
  }

  /// Returns the time of the schedule; infinite if none was found.
  double evict_around_filling(double room, moment_cut& cut, run_clock& clock) {
    const turnaround_result guide = bound_for(room, clock, false);
    if (guide.recomputation <= 0 || guide.infeasible) return no_time;
    cut.at(static_cast<std::uint32_t>(index(guide.moment)));
    moment_filling filled = fill_moment(cut, part_of_budget(room) - cut.working_set(), guide.multiplier,
                                        [&] { return clock.should_stop(); });
    return filled.fits ? evict_holding(std::move(filled.resident), clock) : no_time;
  }

  const part_setting& s_;
  pool& pool_;
  const turnaround_result& bound_;
  run_clock& clock_;
};

}  // namespace REMAT_NAMESPACE::detail
