// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/solver/frontier.hpp"

#include <cmath>
#include <iterator>
#include <new>
#include <stop_token>
#include <string>
#include <utility>

#include "remat/bound/least_memory.hpp"
#include "remat/bound/offload.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/portable_pieces.hpp"
#include "remat/core/detail/within_memory.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/core/option.hpp"
#include "remat/problem/detail/problem_bytes.hpp"
#include "remat/schedule/check.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/detail/solution_bytes.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE std::int64_t least_memory_within(const problem& p, double max_time,
                                              const least_memory_within_options& options) {
  if (std::isnan(max_time)) throw bad_argument("least_memory_within: max_time is not a number");
  constexpr std::uint32_t likely = 8;  // budgets among which a limit of time is shared
  const run_clock clock(options.run);
  const double longest = with_rounding(max_time);
  least_memory_options any_time;
  any_time.run = clock.limits(0.1);
  std::int64_t low = least_memory_bound(p, any_time).bytes;
  const std::int64_t most = std::min(p.budget(), p.graph().baseline_peak);
  if (p.graph().needed_time > longest) return p.has_budget() ? std::max(low, p.budget() + 1) : problem::unlimited;
  turnaround_analysis analysis(p);
  const auto proves = [&](std::int64_t budget, std::uint32_t chain_moments, const run_control& run) {
    if (p.link()) {
      offload_bound_options proving;
      proving.want_choice = false;
      proving.run = run;
      return offload_bound(p.with_budget(budget), proving).lower_bound > longest;
    }
    turnaround_options proving;
    proving.want_saved = false;
    proving.chain_moments = chain_moments;
    proving.run = run;
    return analysis.bound(budget, proving).lower_bound > longest;
  };
  const auto bisect = [&](std::uint32_t chain_moments, double share) {
    const run_clock part(clock.limits(share));
    std::int64_t high = most;                        // nothing is proven there yet
    bool is_first = most < p.graph().baseline_peak;  // the budget of `p` may be too small itself
    for (std::uint32_t left = options.budgets; left > 0 && low <= high && high - low > high / 1024; --left) {
      if (part.should_stop()) break;
      const std::int64_t budget = is_first ? high : low + (high - low) / 2;
      is_first = false;
      if (proves(budget, chain_moments, part.limits(1.0 / std::min(left, likely))))
        low = budget + 1;
      else
        high = budget;
    }
  };
  const bool has_chains = options.chain_moments > 0 && !p.link();
  bisect(0, has_chains ? 0.5 : 1);
  if (has_chains && low < most) bisect(options.chain_moments, 1);
  return low;
}

namespace detail::frontier {

/// The kind of the points of a solver.
inline std::string kind_of(std::string_view solver) { return "frontier/" + std::string(solver); }

/// The answer within one budget. That memory runs out is an answer: the other budgets' answers stay.
inline solution solve_point(const problem& p, const problem_solver& solve, const run_control& run) {
  solution answer;
  if (!detail::within_memory([&] { answer = solve(p, run); })) {
    answer.out_of_memory = true;
    answer.message = "out of memory";
  }
  return answer;
}

}  // namespace detail::frontier

REMAT_INLINE std::vector<solution> frontier_by(const problem& p, std::span<const std::int64_t> budgets,
                                               const problem_solver& solve, const run_control& run,
                                               std::string_view solver) {
  std::vector<solution> answers(budgets.size());
  std::vector<std::size_t> points = detail::ascending(budgets);  // one of each budget, the smallest first
  points.erase(
      std::unique(points.begin(), points.end(), [&](std::size_t a, std::size_t b) { return budgets[a] == budgets[b]; }),
      points.end());
  run_clock clock(run);
  const std::string kind = solver.empty() ? std::string() : detail::frontier::kind_of(solver);
  std::size_t begun = 0;
  piece_list pieces;
  pieces.count = points.size();
  // Small budgets are hard.
  pieces.size = [&](std::size_t k) { return 1 / (1 + static_cast<double>(budgets[points[k]])); };
  pieces.limits = [&](std::size_t, std::size_t members) {
    const auto left = static_cast<double>(points.size() - begun++);
    run_control limits = clock.limits(std::min(1.0, static_cast<double>(members) / left));
    limits.work_limit = share_of(run.work_limit, 1.0 / static_cast<double>(points.size()));
    limits.is_part = run.is_part;  // each is a solve by itself
    return limits;
  };
  pieces.run = [&](std::size_t k, const run_control& limits) {
    answers[points[k]] = detail::frontier::solve_point(p.with_budget(budgets[points[k]]), solve, limits);
  };
  pieces.report = [&](std::size_t finished) {
    clock.report({.stage = "budgets", .done = finished, .total = points.size()});
  };
  detail::let_others_run<solution>(
      pieces, kind, [&](detail::byte_writer& out) { put_problem(out, p); },
      [&](std::size_t k) { return budgets[points[k]]; },
      [&](std::size_t k, solution found) {
        // The exact checker has the last word here as well.
        if (found.plan && !check(p.with_budget(budgets[points[k]]), *found.plan).valid())
          throw error("frontier: another process returned a schedule that breaks the rules");
        answers[points[k]] = std::move(found);
      });
  for (const std::size_t k : points) (void)p.with_budget(budgets[k]);  // throws before any is solved
  run_control control = run;
  if (run.on_progress) control.on_progress = [&](const progress& news) { clock.report(news.without_figures()); };
  run_pieces(pieces, control);

  const auto is_better = [](const solution& before, const solution& now) {
    return before.plan && (!now.plan || before.time < now.time);
  };
  const auto carry_over = [&](const solution& before, solution& now) {
    now.plan = before.plan;
    now.by = before.by;
    now.peak_bytes = before.peak_bytes;
    now.host_peak_bytes = before.host_peak_bytes;
    now.time = before.time;
    now.statistics.computes = before.statistics.computes;
    now.statistics.recomputes = before.statistics.recomputes;
    const std::string failure = now.status == solve_status::error ? "; within this one: " + now.message : "";
    const bool refuted = drop_refuted_bound(now, p.graph().needed_time);
    now.status = !refuted && is_optimal(now.time, now.lower_bound) ? solve_status::optimal : solve_status::feasible;
    if (!refuted) now.message = "the schedule for a smaller budget, the best found" + failure;
  };
  carry_over_budgets(budgets, answers, is_better, carry_over);
  return answers;
}

REMAT_INLINE piece_kind frontier_points(std::string_view solver, problem_solver solve) {
  const auto open = [solve = std::move(solve)](detail::byte_reader& in) {
    return [p = detail::get_problem(in), solve](std::int64_t budget, const run_control& run) {
      return detail::frontier::solve_point(p.with_budget(budget), solve, run);
    };
  };
  return detail::portable_kind<std::int64_t>(detail::frontier::kind_of(solver), open);
}

REMAT_INLINE budget_bisection
bisect_budgets(std::int64_t low, std::int64_t high, const trade_off_options& options,
               const std::function<budget_probe(std::int64_t budget, const run_control& run)>& probe, double target) {
  if (options.probes == 0) throw bad_argument("bisect_budgets: probes is 0; it must be at least 1");
  constexpr int most_below_best = 3;  // most probes below the best, in steps of a 25th
  constexpr double first_share = 0.2;
  // Probes of a round take a share of the time that is left, begin in an interval below the best of a part of it, and
  // end at another. The first round has the whole interval.
  struct round_of_probes {
    double share;
    std::int64_t interval, end;  // parts of the best: a so-manieth
  };
  constexpr round_of_probes rounds[] = {
      {0.03, 1, 64}, {0.06, 16, 128}, {0.15, 16, 256}, {0.3, 32, 1024}, {0.4, 128, 8192}};
  const run_control& run = options.run;
  const run_clock clock(run);
  const bool counted = run.has_work_limit();
  budget_bisection out{.least = low};
  std::int64_t& least = out.least;
  int below_best = 0;
  std::size_t round = 0;
  bool has_failed = true;  // a probe of this round
  bool heeds_progress = !counted;
  for (std::uint32_t i = 0; i < options.probes && least <= high; ++i) {
    if (i != 0 && clock.should_stop()) break;
    low = std::max(low, least);
    bool is_below = false;
    if (i != 0 && (low > high || high - low < high / rounds[round].end)) {
      is_below = round == 0 && below_best < most_below_best && high - high / 25 * (below_best + 1) >= least;
      if (!is_below) {
        if (has_failed && ++round == std::size(rounds)) break;
        has_failed = false;
        low = std::max(least, high - high / rounds[round].interval);
      }
    }
    if (is_below) ++below_best;
    const std::int64_t budget = i == 0 ? high : is_below ? high - high / 25 * below_best : low + (high - low) / 2;

    bool is_cut_short = false;
    const auto ask = [&] {
      run_control part = clock.limits(i == 0 ? first_share : rounds[round].share);
      part.work_limit = share_of(run.work_limit, 1.0 / options.probes);
      part.is_part = run.is_part;  // each is a solve by itself
      std::stop_source stop;
      const std::stop_callback pass_on(run.stop, [&] { stop.request_stop(); });
      part.stop = stop.get_token();
      part.on_progress = [&](const progress& news) {
        if (run.on_progress) {
          progress in_bytes = news.without_figures();
          if (out.found) in_bytes.best_objective = static_cast<double>(high + 1);
          in_bytes.lower_bound = static_cast<double>(least);
          run.on_progress(in_bytes);
        }
        const bool seems_good = news.best_objective <= target;
        const bool seems_hopeless = std::isfinite(target) && news.lower_bound > target;
        if (!heeds_progress || !(seems_good || seems_hopeless)) return;
        is_cut_short = true;
        stop.request_stop();
      };
      return probe(budget, part);
    };
    budget_probe found = ask();
    // Progress spares time, but decides nothing: if the answer does not say the same, it is not heeded any more.
    if (is_cut_short && !found.bytes && !found.proves_none && !run.stop.stop_requested()) {
      heeds_progress = false;
      found = ask();
    }
    if (found.bytes) {
      high = std::min(budget, *found.bytes) - 1;
      if (is_below) low = least;
      below_best = 0;
      out.found = true;
    } else {
      if (found.proves_none) least = budget + 1;
      if (i == 0) break;
      if (!is_below) low = budget + 1;
      has_failed = true;
    }
  }
  return out;
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
    best.message = "no schedule takes less than " + option_text(g.needed_time) + ", the time of the needed operations";
    return best;
  }
  std::int64_t least = least_memory_within(p, max_time, least_memory_within_options::under(clock.limits(0.1)));
  if (least > p.budget()) {
    best.status = solve_status::infeasible;
    best.message = "a schedule of at most " + option_text(max_time) + " needs at least " +
                   detail::count_of(least, "byte") + "; the budget is " + detail::count_of(p.budget(), "byte");
    best.statistics.own.set("least_bytes", least);
    return best;
  }
  std::uint64_t work = 0;
  bool out_of_memory = false, ended = true;
  const auto probe = [&](std::int64_t budget, const run_control& part) -> budget_probe {
    solution answer;
    // If memory runs out, the best of the other budgets stays.
    if (!detail::within_memory([&] { answer = solve(p.with_budget(budget), part); })) answer.out_of_memory = true;
    out_of_memory = out_of_memory || answer.out_of_memory;
    work += answer.statistics.work;
    const bool proves_none = answer.status == solve_status::infeasible || answer.lower_bound > longest;
    ended = ended && (answer.status != solve_status::timeout || ended_by_itself(answer.statistics.own));
    if (!answer.plan || answer.time > longest) {
      if (!best.plan) best.status = answer.status;
      return {{}, proves_none};
    }
    const std::int64_t bytes = answer.peak_bytes;
    if (!best.plan || bytes < best.peak_bytes) best = std::move(answer);
    return {bytes};
  };
  trade_off_options rest = options;
  rest.run.time_limit = clock.left();
  least = bisect_budgets(least, std::min(p.budget(), g.baseline_peak), rest, probe, longest).least;
  if (out_of_memory && !best.plan) throw std::bad_alloc();
  best.out_of_memory = out_of_memory;
  best.statistics.seconds = clock.seconds();
  best.statistics.work = work;
  best.lower_bound = g.needed_time;
  const bool is_refuted = best.plan && best.peak_bytes < least;
  if (is_refuted) least = largest_working_set(p).bytes;
  best.statistics.own.set("least_bytes", least);
  if (best.plan) {
    best.status = best.peak_bytes <= least ? solve_status::optimal : solve_status::feasible;
    best.message = "the least peak found for a time of at most " + option_text(max_time) +
                   (out_of_memory ? "; out of memory" : "") +
                   (is_refuted ? "; it refutes a proven bound, which is a defect of remat: please report it" : "");
  } else if (least > p.budget()) {
    best.status = solve_status::infeasible;
  } else if (best.status != solve_status::infeasible && best.status != solve_status::cancelled) {
    best.status = solve_status::timeout;
    if (ended && !clock.should_stop()) best.statistics.own.set(ended_figure, true);
  }
  return best;
}

}  // namespace REMAT_NAMESPACE
