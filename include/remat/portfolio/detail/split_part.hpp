// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "remat/bound/detail/moment_branch.hpp"
#include "remat/bound/detail/moment_cut.hpp"
#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/portfolio/detail/part.hpp"
#include "remat/portfolio/detail/part_setting.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/portfolio/detail/shares.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/step_split.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE::detail {

/// Solves one side of a split step within limits.
using side_solver = std::function<solution(const problem&, const run_control&)>;

/// Splits the step at the moments that give the bound, the last one first, and solves both sides.
class step_splitter {
 public:
  step_splitter(const part_setting& s, side_solver solve) : s_(s), solve_(std::move(solve)) {}

  part_slice operator()(const pool_view& now, run_clock& clock) {
    part_slice slice;
    std::vector<op_id> moments = now.moments;
    if (moments.empty() && now.moment.recomputation > 0) moments.push_back(now.moment.moment);
    moment_cut cut(s_.instance.graph());
    for (std::size_t i = moments.size(); i-- > 0 && !clock.should_stop();) {
      run_clock one = clock.part(i == 0 ? 1 : 0.5);  // the last moments gain most
      // A choice that fills the budget may leave the second side too little: then one that holds less.
      for (const double room : {1.0, 0.99, 0.96, 0.9}) {
        run_clock attempt = one.part(room > 0.95 ? 0.5 : 1);
        if (attempt.should_stop()) break;
        const double limit = std::min(now.best.time, slice.found.time);
        const auto moment = static_cast<std::uint32_t>(index(moments[i]));
        if (split_at(moment, room, limit, now.moment.multiplier, cut, attempt, slice.found)) break;
      }
    }
    ++slices_;
    slice.ended = moments.empty();
    return slice;
  }

 private:
  /// Holds at most `room` of the bytes that the moment leaves. Returns true if both sides have a schedule, or cannot be
  /// faster than `limit`. The second side comes first: it may have no schedule, since it cannot make what it begins
  /// with again, or take too long.
  bool split_at(std::uint32_t moment, double room, double limit, double multiplier, moment_cut& cut, run_clock& clock,
                solution& found) {
    const flat_graph& g = s_.instance.graph();
    cut.at(moment);
    const auto free = static_cast<std::int64_t>(room * static_cast<double>(s_.instance.budget() - cut.working_set()));
    const moment_optimum choice = find_moment_optimum(cut, free, multiplier, 1e-7 * g.needed_time, s_.branch_nodes,
                                                      [&] { return clock.should_stop(); });
    count_flows(choice.flows, s_.size(), clock);
    if (!std::isfinite(choice.upper)) return false;
    const auto sides = step_split::at(s_.instance, moment, choice.saved, rerun_order::on_demand);
    if (!sides) return false;
    const solution after = solve(sides->after, clock, 0.4);
    if (!after.plan) return false;
    if (after.time + sides->before.graph().needed_time >= limit) return true;
    const solution before = solve(sides->before, clock, 1);
    if (!before.plan) return false;
    schedule joined = schedule_computes(s_.instance, sides->join(*before.plan, *after.plan));
    const check_report report = check(s_.instance, joined);
    if (!report.valid()) return false;
    keep_if_better(found, std::move(joined), report, s_.name_of("split"));
    return true;
  }

  [[nodiscard]] solution solve(const problem& side, run_clock& clock, double share) {
    run_control limits = clock.limits(share);
    limits.seed += slices_;
    solution s = solve_within_memory(clock, [&] { return solve_(side, limits); });
    clock.work(s.statistics.work);
    return s;
  }

  const part_setting& s_;
  side_solver solve_;
  std::uint64_t slices_ = 0;
};

/// Splits of the step. The part is useful once also near the bound, since what it finds is far from what others
/// improve.
[[nodiscard]] inline portfolio_part split_part(const part_setting& s, side_solver solve) {
  const auto has_run = std::make_shared<bool>(false);
  portfolio_part part;
  part.name = "split";
  part.weight = 1.5;
  part.first_share = 0.4;
  part.run = run_by(std::make_shared<step_splitter>(s, std::move(solve)));
  part.is_useful = [has_run](const pool_view& now) {
    return !now.best.is_within(*has_run ? part_gaps::wide : part_gaps::exact);
  };
  part.publish = [has_run](pool_view&) { *has_run = true; };
  return part;
}

}  // namespace REMAT_NAMESPACE::detail
