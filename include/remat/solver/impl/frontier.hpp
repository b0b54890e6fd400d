// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/solver/frontier.hpp"

#include <cmath>
#include <new>
#include <stop_token>
#include <string>
#include <utility>

#include "remat/bound/least_memory.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE std::vector<solution> frontier_by(const problem& p, std::span<const std::int64_t> budgets,
                                               const std::function<solution(const problem&, const run_control&)>& solve,
                                               const run_control& run) {
  run_clock clock(run);
  const auto solve_one = [&](std::int64_t budget, std::size_t position) {
    run_clock part = clock.part(1.0 / static_cast<double>(budgets.size() - position));
    solution answer;
    try {
      answer = solve(p.with_budget(budget), part.control());
    } catch (const std::bad_alloc&) {  // the other budgets' answers stay
      answer.out_of_memory = true;
      answer.message = "out of memory";
    }
    part.work(answer.statistics.work);
    return answer;
  };
  const auto is_better = [](const solution& before, const solution& now) {
    return before.plan && (!now.plan || before.time < now.time);
  };
  const auto carry_over = [](const solution& before, solution& now) {
    now.plan = before.plan;
    now.peak_bytes = before.peak_bytes;
    now.time = before.time;
    now.statistics.computes = before.statistics.computes;
    now.statistics.recomputes = before.statistics.recomputes;
    now.status = is_optimal(now.time, now.lower_bound) ? solve_status::optimal : solve_status::feasible;
    now.message = "the schedule for a smaller budget, the best found";
  };
  return solve_budgets<solution>(budgets, solve_one, is_better, carry_over);
}

REMAT_INLINE bool bisect_budgets(
    std::int64_t low, std::int64_t high, const trade_off_options& options,
    const std::function<std::optional<std::int64_t>(std::int64_t budget, const run_control& run)>& probe,
    double target) {
  if (options.probes == 0) throw bad_argument("bisect_budgets: probes is 0; it must be at least 1");
  const run_control& run = options.run;
  const run_clock clock(run);
  const bool counted = run.work_limit != run_control::no_work_limit;
  const std::int64_t least = low;
  int below_best = 0;  // the next of the budgets below the best, in steps of 4 %
  for (std::uint32_t i = 0; i < options.probes && least <= high; ++i) {
    if (i != 0 && clock.should_stop()) break;
    const bool narrow = i != 0 && high - low < high / 256;
    if (narrow && ++below_best > 3) break;
    const std::int64_t budget = i == 0 ? high : narrow ? high - high / 25 * below_best : low + (high - low) / 2;
    if (budget < least) break;

    std::stop_source stop;
    const std::stop_callback pass_on(run.stop, [&] { stop.request_stop(); });
    run_control part = clock.limits(1.0 / std::max<std::uint32_t>(2, 11 - std::min<std::uint32_t>(i, 9)));
    part.work_limit = share_of(run.work_limit, 1.0 / options.probes);
    part.stop = stop.get_token();
    part.on_progress = [&](const progress& news) {
      if (run.on_progress) run.on_progress(news);
      if (!counted && news.best_objective <= target) stop.request_stop();
    };
    const std::optional<std::int64_t> bytes = probe(budget, part);
    if (bytes) {
      high = std::min(budget, *bytes) - 1;
      if (narrow) low = least;
      below_best = 0;
    } else if (i == 0) {
      return false;
    } else if (!narrow) {
      low = budget + 1;
    }
  }
  return true;
}

REMAT_INLINE solution least_memory_by(const problem& p, double max_time,
                                      const std::function<solution(const problem&, const run_control&)>& solve,
                                      const trade_off_options& options) {
  if (std::isnan(max_time)) throw bad_argument("least_memory_by: max_time is not a number");
  const flat_graph& g = p.graph();
  const run_clock clock(options.run);
  const double longest = with_rounding(max_time);
  solution best;
  best.lower_bound = g.needed_time;
  if (longest < g.needed_time) {
    best.status = solve_status::infeasible;
    best.message =
        "no schedule takes less than " + std::to_string(g.needed_time) + ", the time of the needed operations";
    return best;
  }
  least_memory_options bounding;
  bounding.run = clock.limits(0.1);
  const std::int64_t least = least_memory_bound(p, bounding).bytes;
  std::uint64_t work = 0;
  bool out_of_memory = false;
  const auto probe = [&](std::int64_t budget, const run_control& part) -> std::optional<std::int64_t> {
    solution answer;
    try {
      answer = solve(p.with_budget(budget), part);
    } catch (const std::bad_alloc&) {  // the best of the other budgets stays
      answer.out_of_memory = true;
    }
    out_of_memory = out_of_memory || answer.out_of_memory;
    work += answer.statistics.work;
    if (!answer.plan || answer.time > longest) {
      if (!best.plan) best.status = answer.status;
      return std::nullopt;
    }
    const std::int64_t bytes = answer.peak_bytes;
    if (!best.plan || bytes < best.peak_bytes) best = std::move(answer);
    return bytes;
  };
  bisect_budgets(least, std::min(p.budget(), g.baseline_peak), options, probe, longest);
  if (out_of_memory && !best.plan) throw std::bad_alloc();
  best.out_of_memory = out_of_memory;
  best.statistics.seconds = clock.seconds();
  best.statistics.work = work;
  best.lower_bound = g.needed_time;
  if (best.plan) {
    best.status = best.peak_bytes <= least ? solve_status::optimal : solve_status::feasible;
    best.message = "the least peak found for a time of at most " + std::to_string(max_time) +
                   (out_of_memory ? "; out of memory" : "");
  } else if (best.status != solve_status::infeasible && best.status != solve_status::cancelled) {
    best.status = solve_status::timeout;
  }
  return best;
}

}  // namespace REMAT_NAMESPACE
