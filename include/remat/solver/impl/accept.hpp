// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/solver/accept.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <new>
#include <numeric>
#include <utility>

#include "remat/bound/detail/price_bound.hpp"
#include "remat/bound/least_memory.hpp"
#include "remat/chain/detail/run_layers.hpp"
#include "remat/core/detail/directed_rounding.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/schedule/simplify.hpp"

namespace REMAT_NAMESPACE {

namespace detail::accepting {

/// The reason why a solve without a plan was stopped, for its message.
[[nodiscard]] inline std::string_view why_stopped(stop_reason stopped) noexcept {
  switch (stopped) {
    case stop_reason::cancelled:
      return "a stop request came before there was a schedule";
    case stop_reason::deadline:
      return "the time limit came before there was a schedule; a longer one may find it";
    default:
      return "the work limit came before there was a schedule; a larger one may find it";
  }
}

/// True if a plan of so many steps takes less than the bound of `s`. Both are sums that were rounded in different ways.
template <class Solution>
[[nodiscard]] bool is_refuted(const Solution& s, std::size_t steps) noexcept {
  return s.lower_bound * (1 - std::max(rounding_error, static_cast<double>(steps) * 0x1p-52)) > s.time;
}
[[nodiscard]] inline std::size_t num_steps(const schedule& plan) noexcept { return plan.steps.size(); }
[[nodiscard]] inline std::size_t num_steps(const std::vector<chain_step>& plan) noexcept { return plan.size(); }

/// The common part of `drop_refuted_bound` for both kinds of solutions.
template <class Solution>
bool drop_refuted(Solution& s, double needed_time) {
  if (!s.plan || !is_refuted(s, num_steps(*s.plan))) return false;
  const std::string bound =
      std::isfinite(s.lower_bound) ? "a proven bound of " + std::to_string(s.lower_bound) : "a proof that nothing fits";
  s.lower_bound = std::min(needed_time, s.time);
  s.message = bound + " is refuted by this schedule, and left out: that is a defect of remat; please report it";
  return true;
}

/// Sets the status and the figures of a finished solve: the common part of both functions `conclude`.
///
/// A plan is `optimal` if its time meets `s.lower_bound`, otherwise `feasible`. A solve without a plan that is neither
/// `infeasible` nor `error` ended by a stop request or by a limit, and says so if it has no message; if nothing stopped
/// it, it says `no_plan`, and has the figure `ended`. `s` is a `solution` or a `chain_solution`. Precondition: the
/// lower bound is proven.
template <class Solution>
void record(Solution& s, const run_clock& clock, stop_reason stopped, std::string_view no_plan) {
  s.statistics.seconds = clock.seconds();
  s.statistics.work = clock.work_done();
  if (clock.is_out_of_memory() && !s.out_of_memory) {
    if (!s.plan && s.status != solve_status::infeasible && s.status != solve_status::error) throw std::bad_alloc();
    s.message += s.message.empty() ? "out of memory" : "; out of memory";
    s.out_of_memory = true;
  }
  if (s.plan) {
    s.status = is_optimal(s.time, s.lower_bound) ? solve_status::optimal : solve_status::feasible;
  } else if (s.status != solve_status::infeasible && s.status != solve_status::error) {
    s.status = stopped == stop_reason::cancelled ? solve_status::cancelled : solve_status::timeout;
    if (stopped == stop_reason::none) s.statistics.own.set(ended_figure, true);
    if (s.message.empty()) s.message = stopped == stop_reason::none ? no_plan : why_stopped(stopped);
  }
}

/// The common part of both functions `conclude_out_of_memory`. Allocates nothing: memory may still be out.
template <class Solution>
void record_out_of_memory(Solution& s, const run_clock& clock) {
  if (!s.plan) throw;
  s.statistics.seconds = clock.seconds();
  s.statistics.work = clock.work_done();
  if (is_refuted(s, num_steps(*s.plan))) s.lower_bound = 0;
  s.status = is_optimal(s.time, s.lower_bound) ? solve_status::optimal : solve_status::feasible;
  s.message.clear();
  s.message = "out of memory";  // short enough to stand in the string itself
  s.out_of_memory = true;
}

}  // namespace detail::accepting

REMAT_INLINE bool keep_if_better(solution& best, schedule plan, const check_report& report, std::string_view by) {
  if (best.plan && (report.time > best.time || (report.time == best.time && report.peak_bytes >= best.peak_bytes)))
    return false;
  std::string found_by(by);  // the only step that can throw
  best.plan = std::move(plan);
  best.by = std::move(found_by);
  best.peak_bytes = report.peak_bytes;
  best.host_peak_bytes = report.host_peak_bytes;
  best.time = report.time;
  best.statistics.computes = report.computes;
  best.statistics.recomputes = report.recomputes;
  best.status = solve_status::feasible;
  return true;
}

REMAT_INLINE acceptance accept(const problem& p, solution& best, schedule plan, std::string_view by) {
  acceptance result;
  result.report = check(p, plan);
  if (result.report.what == violation::over_budget || result.report.what == violation::over_host_budget) return result;
  if (!result.report.valid()) throw internal_error("a solver made an invalid schedule: " + result.report.message());
  result.taken = keep_if_better(best, std::move(plan), result.report, by);
  return result;
}

REMAT_INLINE bool prove(const problem& p, solution& s, const run_control& run) {
  if (!s.proven && s.plan && is_optimal(s.time, p.graph().needed_time)) {
    s.proven = true;  // the needed time is a bound, and it is met
    s.lower_bound = std::max(s.lower_bound, p.graph().needed_time);
  }
  if (!s.proven) {
    s.proven = true;
    double bound = p.graph().needed_time;
    if (p.known_bound()) {
      bound = std::max(bound, *p.known_bound());
      if (!std::isfinite(bound)) s.message = "proven: no schedule fits the budget";
    } else if (p.link()) {
      if (const least_memory_result least = largest_working_set(p); least.bytes > p.budget()) {
        bound = std::numeric_limits<double>::infinity();
        s.message = least.message(p.operation_name(least.operation));
        s.obstacle = least.operation;
      }
    } else if (p.has_budget() && p.budget() < p.graph().baseline_peak) {
      run_control limits;
      limits.stop = run.stop;
      limits.time_limit = run.time_limit;
      run_clock clock(limits);
      detail::turnaround_state analysis(p);
      detail::price_bound search(analysis, p.budget(), detail::usual_moments, clock);
      if (search.run()) {
        bound = std::max(bound, search.lower_bound());
      } else {
        bound = std::numeric_limits<double>::infinity();
        s.message = search.least_memory().message(p.operation_name(search.least_memory().operation));
        s.obstacle = search.least_memory().operation;
      }
    }
    s.lower_bound = std::max(s.lower_bound, bound);
  }
  if (std::isfinite(s.lower_bound)) return false;
  s.status = solve_status::infeasible;
  return true;
}

REMAT_INLINE bool drop_refuted_bound(solution& s, double needed_time) {
  if (!detail::accepting::drop_refuted(s, needed_time)) return false;
  s.obstacle.reset();
  return true;
}

REMAT_INLINE bool settled_by_listed_order(const problem& p, solution& best, std::string_view solver) {
  const std::string by = solver == "no_remat" ? std::string(solver) : by_part(solver, "no_remat");
  std::vector<std::uint32_t> order(p.graph().num_operations);
  std::iota(order.begin(), order.end(), 0u);
  if (accept(p, best, schedule_computes(p.graph(), order), by)) {
    best.lower_bound = p.graph().needed_time;
    best.proven = true;
    return true;
  }
  const least_memory_result least = largest_working_set(p);
  if (least.bytes <= p.budget()) return false;
  best.status = solve_status::infeasible;
  best.lower_bound = std::numeric_limits<double>::infinity();
  best.proven = true;
  best.obstacle = least.operation;
  best.message = least.message(p.operation_name(least.operation));
  return true;
}

REMAT_INLINE void conclude(const problem& p, solution& s, const run_clock& clock, stop_reason stopped) {
  constexpr std::chrono::milliseconds time_for_bound(50);
  run_control proving = clock.control();
  proving.time_limit = std::max<std::chrono::nanoseconds>(clock.left(), time_for_bound);
  prove(p, s, proving);
  drop_refuted_bound(s, p.graph().needed_time);
  detail::accepting::record(s, clock, stopped, "the heuristic found no schedule; that is no proof that there is none");
}

REMAT_INLINE void conclude_out_of_memory(solution& s, const run_clock& clock) {
  detail::accepting::record_out_of_memory(s, clock);
}

REMAT_INLINE bool accept(const chain_problem& p, chain_solution& best, std::vector<chain_step> plan) {
  const chain_report report = simulate(p, plan);
  if (!report.legal) throw internal_error("a solver made an invalid schedule of a chain: " + report.message);
  if (report.peak_bytes > p.budget()) return false;
  chain_solution found;
  found.peak_bytes = report.peak_bytes;
  found.time = report.time;
  found.statistics.computes = plan.size();
  found.statistics.recomputes = report.forwards - p.stages().length();
  found.plan = std::move(plan);
  return keep_if_better(best, std::move(found));
}

REMAT_INLINE bool keep_if_better(chain_solution& best, chain_solution&& found) {
  if (!found.plan) return false;
  if (best.plan && (found.time > best.time || (found.time == best.time && found.peak_bytes >= best.peak_bytes)))
    return false;
  best.plan = std::move(found.plan);
  found.plan.reset();
  best.peak_bytes = found.peak_bytes;
  best.time = found.time;
  best.statistics.computes = found.statistics.computes;
  best.statistics.recomputes = found.statistics.recomputes;
  best.status = solve_status::feasible;
  return true;
}

REMAT_INLINE std::int64_t largest_working_set(const chain_problem& p) {
  const chain& c = p.stages();
  std::int64_t most = c.input_bytes() + c.activation_bytes(c.length());
  for (std::size_t i = 1; i <= c.length(); ++i) {
    const chain_stage& s = c.stage(i);
    const std::int64_t input = c.activation_bytes(i - 1);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::size_t k = 0; k <= s.options.size(); ++k) {
      const chain_option o = s.option(k);
      least = std::min(least, o.saved_bytes + std::max(o.forward_overhead_bytes, input + o.backward_overhead_bytes));
    }
    most = std::max(most, c.input_bytes() + (i > 1 ? input : 0) + least);
  }
  return most;
}

REMAT_INLINE double repetition_bound(const chain_problem& p) {
  struct item {
    double time;  // the fastest forward
    std::int64_t saved;
  };
  const chain& c = p.stages();
  const std::size_t n = c.length();
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  std::int64_t output = most, least_saved = most, all_saved = 0;
  std::vector<item> items;
  for (const chain_stage& stage : c.stages()) {
    output = std::min(output, stage.output_bytes);
    item i{stage.forward_time, stage.saved_bytes};
    for (const chain_option& o : stage.options) {
      i.time = std::min(i.time, o.forward_time);
      i.saved = std::min(i.saved, o.saved_bytes);
    }
    least_saved = std::min(least_saved, i.saved);
    all_saved += i.saved;
    items.push_back(i);
  }
  const std::int64_t room = p.budget() - c.input_bytes() - output;  // beside a gradient
  if (output == 0 || room < least_saved + output) return c.least_time();
  std::vector<double> further;  // [k]: the time of all runs after the first k of their stages
  // Stages that run k times at most are N(0, k) in number, or in saved bytes, if N(a, 1) is that of what fits: so N(0,
  // k) of the costliest run no more. In bytes one stage more is left out, which fits in part, and one for the rounding
  // of the order.
  const auto add = [&](bool in_bytes) {
    std::vector<std::uint64_t> whole;
    for (std::int64_t left = room; left >= least_saved && whole.size() <= n; left -= output)
      whole.push_back(static_cast<std::uint64_t>(in_bytes ? left : left / least_saved));
    const detail::run_layers layers(std::move(whole), in_bytes ? static_cast<std::uint64_t>(all_saved) : n);
    const auto size = [&](const item& i) { return static_cast<std::uint64_t>(in_bytes ? i.saved : 1); };
    std::sort(items.begin(), items.end(), [&](const item& x, const item& y) {
      return x.time * static_cast<double>(size(y)) > y.time * static_cast<double>(size(x));
    });
    std::vector<double> rest(n + 3);  // [i]: the time of the items from i on
    detail::sum_from_below sum;
    for (std::size_t i = n; i-- > 0; rest[i] = sum.value()) sum.add(items[i].time);
    further.resize(std::max(further.size(), layers.depth()));
    std::uint64_t used = 0;
    for (std::size_t k = 1, i = 0; k < layers.depth(); ++k) {
      while (i < n && used + size(items[i]) <= layers.most(0, k)) used += size(items[i++]);
      further[k] = std::max(further[k], rest[i + (in_bytes ? 2 : 0)]);
    }
  };
  add(false);
  if (all_saved > least_saved * static_cast<std::int64_t>(n) && all_saved < std::int64_t{1} << 52) add(true);
  detail::sum_from_below all;
  all.add(c.least_time());
  for (std::size_t k = 1; k < further.size(); ++k) all.add(further[k]);
  return all.value();
}

REMAT_INLINE bool prove(const chain_problem& p, chain_solution& s, const run_control&) {
  if (!s.proven) {
    s.proven = true;
    s.lower_bound = std::max(s.lower_bound, repetition_bound(p));
    if (const std::int64_t least = largest_working_set(p); least > p.budget()) {
      s.lower_bound = std::numeric_limits<double>::infinity();
      s.message = "some stage needs " + detail::count_of(least, "byte") + " by itself, with the input of the chain";
    }
  }
  if (s.lower_bound < std::numeric_limits<double>::infinity()) return false;
  s.status = solve_status::infeasible;
  return true;
}

REMAT_INLINE void conclude(const chain_problem& p, chain_solution& s, const run_clock& clock, stop_reason stopped) {
  prove(p, s);
  detail::accepting::drop_refuted(s, p.stages().least_time());
  detail::accepting::record(s, clock, stopped, "no schedule of this kind fits; that is no proof that there is none");
}

REMAT_INLINE void conclude_out_of_memory(chain_solution& s, const run_clock& clock) {
  detail::accepting::record_out_of_memory(s, clock);
}

REMAT_INLINE std::vector<chain_step> store_all_steps(const chain& c) {
  std::vector<chain_step> steps;
  const auto loss = static_cast<std::uint32_t>(c.length() + 1);
  for (std::uint32_t i = 1; i <= loss; ++i) steps.push_back({chain_action::forward_all, i});
  for (std::uint32_t i = loss; i >= 1; --i) steps.push_back({chain_action::backward, i});
  return steps;
}

}  // namespace REMAT_NAMESPACE
