// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/refined.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <utility>

#include "remat/bound/turnaround.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/exact.hpp"
#include "remat/refine/refine.hpp"
#include "remat/schedule/check.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE {
namespace detail::refined_solve {

/// One solve of `refined`: bound, eviction, exact search, refinement, in this order.
class refinement_solve {
 public:
  refinement_solve(const problem& p, const refined_options& options)
      : options_(options), clock_(options.run, refined_solver::name), problem_(p), analysis_(p) {
    clock_.watch(best_.time, best_.lower_bound);
    require_valid_options(refined_solver::name, options);
  }
  refinement_solve(const refinement_solve&) = delete;  // callbacks refer to it
  refinement_solve& operator=(const refinement_solve&) = delete;

  solution run() {
    try {
      search();
      conclude(problem_, best_, clock_, stopped_);
    } catch (const std::bad_alloc&) {
      conclude_out_of_memory(best_, clock_);
    }
    return std::move(best_);
  }

 private:
  void search() {
    stopped_ = clock_.poll();
    if (stopped_ != stop_reason::none || prove_bound()) return;
    if (is_small() && search_exactly()) return;
    take_starts();
    evict_under_guidance();
    if (!is_small() && search_exactly()) return;
    stopped_ = clock_.poll();
    if (!starts_.empty() && stopped_ == stop_reason::none && !meets_bound()) improve();
  }

  static constexpr double bound_share = 0.2, eviction_share = 0.25, guided_share = 0.2, random_share = 0.2,
                          exact_share = 0.25, small_share = 0.75;
  static constexpr std::uint32_t chain_moments = 48;

  [[nodiscard]] bool is_small() const noexcept { return problem_.graph().num_operations <= refined_solver::small_step; }
  [[nodiscard]] bool is_timed() const noexcept {
    return options_.run.work_limit == run_control::no_work_limit &&
           options_.run.time_limit != std::chrono::nanoseconds::max();
  }
  [[nodiscard]] bool meets_bound() const noexcept { return best_.is_within(options_.gap); }

  /// The turnaround bound, with branch and bound and chains of moments. True: no schedule is within the budget.
  bool prove_bound() {
    turnaround_options proving;
    proving.branch_nodes = options_.branch_nodes;
    proving.chain_moments = chain_moments;
    run_clock part = clock_.part(bound_share);
    proving.run = part.control();
    bound_ = analysis_.bound(problem_.budget(), proving);
    best_.proven = true;
    best_.lower_bound =
        std::max({bound_.lower_bound, problem_.graph().needed_time, problem_.known_bound().value_or(0)});
    if (bound_.infeasible) {
      best_.message = bound_.least_memory.message(problem_.operation_name(bound_.least_memory.operation));
      best_.obstacle = bound_.least_memory.operation;
    }
    if (prove(problem_, best_)) return true;
    problem_ = problem_.with_known_bound(best_.lower_bound);
    return false;
  }

  void take_starts() {
    for (const schedule& start : options_.starts) {
      const check_report report = check(problem_, start);
      if (report.what == violation::over_budget) continue;
      if (!report.valid()) throw bad_argument("refined: a schedule to start from is illegal: " + report.message());
      starts_.push_back(start);
      keep_if_better(best_, start, report, by_part(refined_solver::name, "start"));
    }
  }

  void run_eviction(evict_options options, double share) {
    solution s = solve_part(clock_, share, evict, problem_, std::move(options));
    if (!s.plan) return;
    take_part(best_, s, [&] { accept(problem_, best_, *s.plan, by_part(refined_solver::name, s.by)); });
    starts_.push_back(std::move(*s.plan));
  }

  /// `evict` plain; then holding on to what the bound's cuts save, for the budget and for somewhat smaller ones; then,
  /// if that is still far from the bound, under random preferences.
  void evict_under_guidance() {
    // Without any schedule nothing can be refined: all of the limits for the first.
    run_eviction({}, best_.plan ? eviction_share : 1.0);
    for (const double room : {1.0, 0.95, 0.9, 0.8}) {
      if (meets_bound()) break;
      stopped_ = clock_.poll();
      if (stopped_ != stop_reason::none) break;
      evict_options guided;
      guided.insist = false;
      if (room == 1.0) {
        guided.keep = bound_.saved;
      } else {
        run_clock part = clock_.part(guided_share);
        bounding_.run = part.control();
        turnaround_result cut =
            analysis_.bound(static_cast<std::int64_t>(room * static_cast<double>(problem_.budget())), bounding_);
        if (cut.infeasible) break;
        guided.keep = std::move(cut.saved);
      }
      run_eviction(std::move(guided), guided_share);
    }
    if (!best_.plan || best_.is_within(0.005)) return;
    evict_options wider;
    wider.random_passes = is_timed() ? std::numeric_limits<std::uint64_t>::max() : 200;
    run_eviction(std::move(wider), random_share);
  }

  /// Runs `exact` for a part of the limits, if the graph is small enough for that. True: the problem is solved.
  bool search_exactly() {
    if (problem_.graph().num_operations > refined_solver::medium_step || best_.is_within(0.001)) return false;
    exact_options searching;
    searching.start_from_heuristic = !is_small();
    run_clock part = clock_.part(is_small() ? small_share : exact_share, exact_solver::name);
    searching.run = part.control();
    if (is_small())
      searching.max_states = 50000;
    else if (options_.run.work_limit == run_control::no_work_limit && !is_timed())
      searching.run.work_limit = refine_options{}.default_moves / 4 * problem_.graph().num_operations;
    solution s = solve_within_memory(part, [&] { return exact(problem_, searching); });
    part.work(s.statistics.work);
    best_.lower_bound = std::max(best_.lower_bound, s.lower_bound);
    if (s.plan) take_part(best_, s, [&] { accept(problem_, best_, *s.plan, by_part(refined_solver::name, s.by)); });
    if (s.status == solve_status::infeasible) best_.message = std::move(s.message);
    return s.status == solve_status::infeasible || meets_bound();
  }

  /// Simulated annealing from all schedules found, with all that is left of the limits.
  void improve() {
    refine_options refining;
    refining.lower_bound = best_.lower_bound;
    refining.searches = options_.searches;
    refining.gap = options_.gap;
    run_clock part = clock_.part(1);
    refining.run = part.control();
    refine_result better = refine(problem_, starts_, refining);
    part.work(better.moves * work_of::move);
    if (better.out_of_memory) part.note_out_of_memory();
    stopped_ = better.stopped;
    accept(problem_, best_, std::move(better.plan), by_part(refined_solver::name, "search"));
  }

  const refined_options& options_;
  run_clock clock_;
  problem problem_;
  turnaround_analysis analysis_;
  turnaround_options bounding_;
  turnaround_result bound_;
  solution best_;
  std::vector<schedule> starts_;
  stop_reason stopped_ = stop_reason::none;
};

}  // namespace detail::refined_solve

REMAT_INLINE solution refined_solver::operator()(const problem& p, const refined_options& options) const {
  return detail::refined_solve::refinement_solve(p, options).run();
}

}  // namespace REMAT_NAMESPACE
