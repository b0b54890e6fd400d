// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/core/control.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/concepts.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

struct trade_off_options {
  /// Solves of `least_memory_for`, at most. Ten halvings bring the interval of budgets to a thousandth.
  std::uint32_t probes = 24;
  /// Of everything together; each solve gets its part of the limits.
  run_control run{};
};

/// Bisection over budgets low … high, the largest first: what cannot be had there cannot be had at all. A heuristic
/// that finds nothing within a budget may still find something within less: once the interval is small, budgets of 4, 8
/// and 12 % less than the best are tried, and the bisection goes on from those that do.
///
/// `probe(budget, run, stop)` makes one solve under `run`, which holds its part of the limits and `stop`'s token, and
/// returns the bytes that its answer takes, at most `budget`, if it is good enough; the next probe is below these. It
/// may request `stop` once it is. Returns whether the first probe was good enough. At most `options.probes` probes; the
/// deadline and the stop token are looked at before each but the first.
template <class Probe>
bool bisect_budgets(std::int64_t low, std::int64_t high, const trade_off_options& options, const run_clock& clock,
                    Probe&& probe) {
  const run_control& run = options.run;
  const std::int64_t least = low;
  int doubt = 0;  // the next of the budgets below the best to try
  for (std::uint32_t i = 0; i < options.probes && least <= high; ++i) {
    if (i != 0 && clock.should_stop()) break;
    const bool narrow = i != 0 && high - low < high / 256;
    if (narrow && ++doubt > 3) break;
    const std::int64_t budget = i == 0 ? high : narrow ? high - high / 25 * doubt : low + (high - low) / 2;
    if (budget < least) break;
    std::stop_source stop;
    const std::stop_callback pass_on(run.stop, [&] { stop.request_stop(); });
    run_control part = run;
    part.stop = stop.get_token();
    if (run.work_limit != run_control::no_work_limit)
      part.work_limit = std::max<std::uint64_t>(1, run.work_limit / options.probes);
    if (run.time_limit != std::chrono::nanoseconds::max())
      part.time_limit = clock.left() / std::max<std::uint32_t>(2, 11 - std::min<std::uint32_t>(i, 9));
    const std::optional<std::int64_t> bytes = probe(budget, part, stop);
    if (bytes) {
      high = std::min(budget, *bytes) - 1;
      if (narrow) low = least;
      doubt = 0;
    } else if (i == 0) {
      return false;
    } else if (!narrow) {
      low = budget + 1;
    }
  }
  return true;
}

/// The dual question: a schedule of at most `most_time`, with as little memory as `solver` finds, by bisection over
/// budgets between the least memory bound and the listed order's peak.
///
/// `most_time`: in the cost model's unit, for instance 1.3 × `p.graph().baseline_time`; `p`'s own budget bounds the
/// memory. A probe ends as soon as it has a schedule that is fast enough, and its peak, not its budget, is where the
/// next one begins. Solvers are heuristic, so the peak is not proven to be the least; `optimal` says that it meets the
/// least memory bound of every schedule. Without any schedule that is fast enough: `infeasible` where `most_time` is
/// below the time of the needed operations, else how the first probe ended.
/// `solve(problem, run_control)` gives a `solution`. At most `probes` solves. Deterministic for a seed and a limit of
/// work, if the solver is. Cancellation: as `solve`.
template <class Solve>
[[nodiscard]] solution least_memory_by(const problem& p, double most_time, Solve&& solve,
                                       const trade_off_options& options = {}) {
  const flat_graph& s = p.graph();
  run_clock clock(options.run);
  const double enough = most_time * (1 + 1e-12);
  const bool counted = options.run.work_limit != run_control::no_work_limit;
  solution best;
  best.lower_bound = s.needed_time;
  if (!(enough >= s.needed_time)) {
    best.status = solve_status::infeasible;
    best.message =
        "no schedule takes less than " + std::to_string(s.needed_time) + ", the time of the needed operations";
    return best;
  }
  const std::int64_t least = least_memory_bound(p).bytes;
  std::uint64_t work = 0;
  const auto probe = [&](std::int64_t budget, run_control& run, std::stop_source& stop) -> std::optional<std::int64_t> {
    if (!counted)  // else the work alone decides
      run.on_progress = [&](const progress& news) {
        if (options.run.on_progress) options.run.on_progress(news);
        if (news.best_objective <= enough) stop.request_stop();
      };
    solution answer = solve(p.with_budget(budget), run);
    work += answer.statistics.work;
    if (!answer.plan || answer.time > enough) {
      if (!best.plan) best.status = answer.status;
      return std::nullopt;
    }
    const std::int64_t bytes = answer.peak_bytes;
    if (!best.plan || bytes < best.peak_bytes) best = std::move(answer);
    return bytes;
  };
  (void)bisect_budgets(least, std::min(p.budget(), s.baseline_peak), options, clock, probe);
  best.statistics.seconds = clock.seconds();
  best.statistics.work = work;
  best.lower_bound = s.needed_time;
  if (best.plan) {
    best.status = best.peak_bytes <= least ? solve_status::optimal : solve_status::feasible;
    best.message = "the least peak found for a time of at most " + std::to_string(most_time);
  } else if (best.status != solve_status::infeasible && best.status != solve_status::cancelled) {
    best.status = solve_status::timeout;
  }
  return best;
}

/// \overload with a solver, and its options but for `run`.
template <class Solver>
requires solver_for<Solver, problem>
[[nodiscard]] solution least_memory_for(const problem& p, double most_time, const Solver& solver,
                                        const trade_off_options& options = {},
                                        typename Solver::options_type solving = {}) {
  return least_memory_by(
      p, most_time,
      [&](const problem& q, const run_control& run) {
        typename Solver::options_type now = solving;
        now.run = run;
        return solver(q, now);
      },
      options);
}

/// All trade-offs in one call: the answer of `solver` for each budget, in the order of `budgets`, made monotone: where
/// a schedule for a smaller budget is faster than what was found for a larger one, it answers for both.
///
/// Each solve gets an equal part of the limits that are left. Smaller budgets are solved first. Throws `bad_argument`
/// for a negative budget.
template <class Solver>
requires solver_for<Solver, problem>
[[nodiscard]] std::vector<solution> frontier(const problem& p, std::span<const std::int64_t> budgets,
                                             const Solver& solver, const run_control& run = {},
                                             typename Solver::options_type solving = {}) {
  run_clock clock(run);
  std::vector<std::size_t> order(budgets.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return budgets[a] < budgets[b]; });
  std::vector<solution> answers(budgets.size());
  const solution* before = nullptr;
  for (std::size_t k = 0; k < order.size(); ++k) {
    solution& answer = answers[order[k]];
    const problem q = p.with_budget(budgets[order[k]]);
    const auto left = static_cast<std::int64_t>(order.size() - k);
    typename Solver::options_type now = solving;
    now.run = run;
    if (run.time_limit != std::chrono::nanoseconds::max()) now.run.time_limit = clock.left() / left;
    if (run.work_limit != run_control::no_work_limit)
      now.run.work_limit = std::max<std::uint64_t>(1, run.work_limit / order.size());
    answer = solver(q, now);
    if (before != nullptr && (!answer.plan || before->time < answer.time)) {
      accept(q, answer, *before->plan);
      answer.status = answer.time <= answer.lower_bound * (1 + 1e-12) ? solve_status::optimal : solve_status::feasible;
      answer.message = "the schedule for a smaller budget, the best found";
    }
    if (answer.plan) before = &answer;
  }
  return answers;
}

}  // namespace remat
