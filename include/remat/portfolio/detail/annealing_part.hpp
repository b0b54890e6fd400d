// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/portfolio/detail/part.hpp"
#include "remat/portfolio/detail/part_setting.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/portfolio/detail/shares.hpp"
#include "remat/portfolio/detail/window_schedules.hpp"
#include "remat/refine/detail/large_neighbourhood.hpp"
#include "remat/refine/refine.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// Simulated annealing from the schedules of all parts; then windows of the best one.
class annealing {
 public:
  explicit annealing(const part_setting& s) : s_(s) {}

  part_slice operator()(const pool_view& now, run_clock& clock) {
    part_slice slice;
    if (now.starts.empty()) return slice;
    const bool solves_windows = s_.size() <= graph_sizes::windows && !now.best.is_within(part_gaps::windows);
    refine_options refining;
    refining.lower_bound = now.best.lower_bound;
    refining.searches = s_.searches;
    refining.gap = s_.gap;
    refining.run = clock.control();
    if (solves_windows) {
      refining.run = clock.limits(share_before_windows(now));
      refining.run.on_progress = clock.control().on_progress;
    }
    refining.run.seed += slices_++;
    refine_result better = refine(now.instance, now.different_starts(most_starts), refining);
    clock.work(better.moves * work_of::move);
    if (better.out_of_memory) clock.note_out_of_memory();
    const schedule refined_plan = better.plan;
    const double time = keep_valid(now.instance, std::move(better.plan), s_.name_of("search"), slice.found);
    if (!solves_windows || clock.should_stop()) return slice;
    if (anneals_windows(s_)) {
      anneal_windows_of_best(now, refined_plan, time, clock, slice.found);
    } else {
      if (!windows_) windows_.emplace(s_.instance, all_window_widths());
      windows_->start(computes_of(refined_plan));
      windows_->run(clock);
      keep_windows(s_, *windows_, now.instance, slice.found);
    }
    return slice;
  }

 private:
  /// The share of moves alone in what windows follow: near the bound, one long cooling finds more than disturbances.
  [[nodiscard]] double share_before_windows(const pool_view& now) const {
    if (!anneals_windows(s_)) return 0.9;
    return now.best.is_within(part_gaps::near) ? 0.75 : 0.35;
  }

  /// Anneals with windows from a schedule that has been refined. Where the gap is wide, also from the best ones of
  /// other parts: each round takes half of the limits that are left, and the faster half of the schedules goes on.
  void anneal_windows_of_best(const pool_view& now, const schedule& refined_plan, double time, run_clock& clock,
                              solution& found) {
    struct candidate {
      schedule plan;
      double time;
    };
    std::vector<candidate> candidates{{refined_plan, time}};
    if (!now.best.is_within(part_gaps::near))
      for (const pool_view::origin& x : now.origins)
        if (candidates.size() < most_window_starts &&
            std::none_of(candidates.begin(), candidates.end(), [&](const candidate& c) { return c.time == x.time; }))
          candidates.push_back({*x.plan, x.time});
    std::uint64_t seed = 2 * slices_ + 1;
    while (!clock.should_stop()) {
      const auto n = static_cast<double>(candidates.size());
      run_clock round = clock.part(n == 1 ? 1 : 0.5);
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        run_clock one = round.part(1 / (n - static_cast<double>(i)));
        solution better;
        better.time = candidates[i].time;
        anneal_windows(s_, candidates[i].plan, candidates[i].time, now, seed, one, better);
        seed += 1000;
        if (!better.plan) continue;
        candidates[i] = {*better.plan, better.time};
        if (better.time < found.time) found = std::move(better);
      }
      if (n == 1) return;
      std::stable_sort(candidates.begin(), candidates.end(),
                       [](const candidate& a, const candidate& b) { return a.time < b.time; });
      candidates.resize((candidates.size() + 1) / 2);
    }
  }

  const part_setting& s_;
  std::optional<large_neighbourhood> windows_;  // windows of what moves alone have found
  std::uint64_t slices_ = 0;
};

/// The closing part: annealing, which gains from one long slice.
[[nodiscard]] inline portfolio_part annealing_part(const part_setting& s) {
  portfolio_part part;
  part.name = "refinement";
  part.weight = 4;
  part.growth = 4;
  part.is_closing = true;
  part.run = run_by(std::make_shared<annealing>(s));
  part.is_useful = [](const pool_view& now) { return !now.starts.empty(); };
  return part;
}

}  // namespace REMAT_NAMESPACE::detail
