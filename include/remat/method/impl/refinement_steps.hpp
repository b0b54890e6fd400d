// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "remat/bound/detail/moment_branch.hpp"
#include "remat/bound/detail/moment_cut.hpp"
#include "remat/bound/detail/moment_fill.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/refined.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/step_split.hpp"
#include "remat/refine/refine.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// The steps of `refined`, for one problem. They may be taken in pieces, each within the limits of a clock: `open`,
/// then `go_on` any number of times, and further schedules to start from in between.
class refinement_steps {
 public:
  /// Both must outlive the object. The limits of `options` are not used.
  refinement_steps(const problem& p, const refined_options& options) : options_(options), problem_(p), analysis_(p) {}

  /// The best schedule so far, the bound and what is proven.
  solution best;

  /// Adds a schedule to start from. Throws `bad_argument` if it is illegal; one over the budget is ignored.
  void add_start(schedule start) {
    const check_report report = check(problem_, start);
    if (report.what == violation::over_budget) return;
    if (!report.valid()) throw bad_argument("refined: a schedule to start from is illegal: " + report.message());
    keep_if_better(best, start, report, by_part(refined_solver::name, "start"));
    starts_.push_back(std::move(start));
  }

  /// The bound, the exact search of a small graph, eviction, and a first refinement. Returns why it stopped early.
  stop_reason open(run_clock& clock) {
    clock_ = &clock;
    stopped_ = clock.poll();
    if (is_stopped() || prove_bound() || (is_small() && search_exactly())) return stopped_;
    for (const schedule& start : options_.starts) add_start(start);
    evict_under_guidance();
    if ((is_timed() || is_counted()) && !is_settled()) improve(opening_share);
    return stopped_ = clock.poll();
  }

  /// Where the best schedule is still far from the bound, the bound of several moments, splits at these, random
  /// eviction and the exact search; then refinement with all that is left. Returns why it stopped early.
  stop_reason go_on(run_clock& clock) {
    clock_ = &clock;
    stopped_ = clock.poll();
    if (is_settled() || prove_bound_of_chains()) return stopped_;
    const bool had_plan = best.plan.has_value();
    if (!is_small() && had_plan && search_exactly()) return stopped_;  // `open` has searched small graphs
    split();
    evict_at_random();
    if (!is_small() && !had_plan && search_exactly()) return stopped_;
    if (!is_settled()) improve(1);
    return stopped_;
  }

 private:
  static constexpr double bound_share = 0.2, eviction_share = 0.25, guided_share = 0.2, random_share = 0.2,
                          exact_share = 0.5, split_share = 0.5, small_share = 0.75, opening_share = 0.15,
                          fillings_share = 0.2, large_fillings_share = 0.8;
  static constexpr std::uint32_t chain_moments = 48;

  [[nodiscard]] bool is_small() const noexcept { return problem_.graph().num_operations <= refined_solver::small_step; }
  [[nodiscard]] bool is_large() const noexcept { return problem_.graph().num_operations > refined_solver::large_step; }
  [[nodiscard]] bool is_counted() const noexcept { return clock_->control().work_limit != run_control::no_work_limit; }
  [[nodiscard]] bool is_timed() const noexcept {
    return !is_counted() && clock_->control().time_limit != std::chrono::nanoseconds::max();
  }
  [[nodiscard]] bool meets_bound() const noexcept { return best.is_within(options_.gap); }
  [[nodiscard]] bool is_stopped() const noexcept { return stopped_ != stop_reason::none; }
  /// True: a limit is spent, or there is nothing to do.
  [[nodiscard]] bool is_settled() {
    stopped_ = clock_->poll();
    return is_stopped() || meets_bound() || !std::isfinite(best.lower_bound);
  }

  /// The turnaround bound, with branch and bound. True: no schedule is within the budget.
  bool prove_bound() {
    turnaround_options proving;
    proving.branch_nodes = options_.branch_nodes;
    bound_ = bound_within(bound_share, proving);
    return take_bound(bound_);
  }

  /// The bound of chains of moments, which takes longer and gains most under tight budgets. True: no schedule is within
  /// the budget.
  bool prove_bound_of_chains() {
    if (best.is_within(0.0005)) return false;
    turnaround_options proving;
    proving.want_saved = false;
    proving.branch_nodes = options_.branch_nodes;  // the segments' tensors are held whole
    proving.chain_moments = chain_moments;
    const turnaround_result found = bound_within(bound_share, proving);
    chain_ = found.chain;
    return take_bound(found);
  }

  [[nodiscard]] turnaround_result bound_within(double share, turnaround_options proving) {
    run_clock part = clock_->part(share);
    proving.run = part.control();
    return analysis_.bound(problem_.budget(), proving);
  }

  bool take_bound(const turnaround_result& found) {
    best.proven = true;
    best.lower_bound = std::max(
        {best.lower_bound, found.lower_bound, problem_.graph().needed_time, problem_.known_bound().value_or(0)});
    if (found.infeasible) {
      best.message = found.least_memory.message(problem_.operation_name(found.least_memory.operation));
      best.obstacle = found.least_memory.operation;
    }
    if (prove(problem_, best)) return true;
    problem_ = problem_.with_known_bound(best.lower_bound);
    return false;
  }

  /// Returns the time of the schedule; infinite if there is none.
  double run_eviction(run_clock& clock, double share, evict_options options) {
    solution s = solve_part(clock, share, evict, problem_, std::move(options));
    if (!s.plan) return std::numeric_limits<double>::infinity();
    take_part(best, s, [&] { accept(problem_, best, *s.plan, by_part(refined_solver::name, s.by)); });
    starts_.push_back(std::move(*s.plan));
    return s.time;
  }

  /// `evict` plain; then holding on to what the bound's moment keeps.
  void evict_under_guidance() {
    // Without any schedule nothing can be refined: all of the limits for the first. On large graphs, a schedule to
    // start from is most often the work of a plain `evict`, which would take as long again.
    if (!best.plan)
      run_eviction(*clock_, 1, {});
    else if (!is_large())
      run_eviction(*clock_, eviction_share, {});
    if (is_large() && evict_around_fillings()) return;
    evict_around_choices();
    if (!is_large()) evict_around_fillings();
  }

  [[nodiscard]] std::int64_t part_of_budget(double room) const {
    return static_cast<std::int64_t>(room * static_cast<double>(problem_.budget()));
  }

  /// The bound for a part of the budget, from 0 to 1.
  [[nodiscard]] turnaround_result bound_for(double room, const run_clock& clock, bool want_saved) {
    if (room == 1) return bound_;
    turnaround_options guiding;
    guiding.want_saved = want_saved;
    guiding.run = clock.limits(guided_share);
    return analysis_.bound(part_of_budget(room), guiding);
  }

  /// Holds what the bound's choice keeps, for the budget and for somewhat smaller ones.
  void evict_around_choices() {
    for (const double room : {1.0, 0.95, 0.9, 0.8}) {
      if (meets_bound()) break;
      stopped_ = clock_->poll();
      if (is_stopped()) break;
      turnaround_result guide = bound_for(room, *clock_, true);
      if (guide.infeasible) break;
      evict_holding(std::move(guide.saved), *clock_);
    }
  }

  /// Holds choices that fill a part of the budget at the bound's moment. The recomputations need the rest: how much is
  /// found by trial, in steps that become smaller. True: a schedule was found.
  bool evict_around_fillings() {
    if (bound_.recomputation <= 0) return false;
    run_clock part = clock_->part(is_large() ? large_fillings_share : fillings_share);
    moment_cut cut(problem_.graph());
    double best_room = 0, least = std::numeric_limits<double>::infinity();
    const auto is_over = [&] { return meets_bound() || part.should_stop(); };
    const auto attempt = [&](double room) {
      const double time = evict_around_filling(room, cut, part);
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
  double evict_around_filling(double room, moment_cut& cut, run_clock& part) {
    const turnaround_result guide = bound_for(room, part, false);
    const double none = std::numeric_limits<double>::infinity();
    if (guide.recomputation <= 0 || guide.infeasible) return none;
    cut.at(static_cast<std::uint32_t>(index(guide.moment)));
    moment_filling filled = fill_moment(cut, part_of_budget(room) - cut.working_set(), guide.multiplier,
                                        [&] { return part.should_stop(); });
    return filled.fits ? evict_holding(std::move(filled.resident), part) : none;
  }

  /// Returns the time of the schedule of eviction that holds `keep`; infinite if there is none.
  double evict_holding(std::vector<tensor_id> keep, run_clock& clock) {
    evict_options guided;
    guided.insist = false;
    guided.keep = std::move(keep);
    return run_eviction(clock, guided_share, std::move(guided));
  }

  /// Splits the step at the moments that give the bound, the last one first, and solves both parts.
  void split() {
    if (options_.splits == 0 || is_small() || (best.plan && best.is_within(0.005))) return;
    std::vector<op_id> moments = chain_;
    if (moments.empty() && bound_.recomputation > 0) moments.push_back(bound_.moment);
    if (moments.empty()) return;
    run_clock all = clock_->part(split_share, "split");
    moment_cut cut(problem_.graph());
    for (std::size_t i = moments.size(); i-- > 0 && !meets_bound() && !all.should_stop();) {
      run_clock part = all.part(i == 0 ? 1 : 0.5);  // the last moments gain most
      // A choice that fills the budget may leave the second part too little: then one that holds less.
      for (const double room : {1.0, 0.96, 0.9}) {
        run_clock attempt = part.part(room > 0.95 ? 0.5 : 1);
        if (attempt.should_stop() || split_at(static_cast<std::uint32_t>(index(moments[i])), room, cut, attempt)) break;
      }
    }
  }

  /// Holds at most `room` of the bytes that the moment leaves. Returns true if a schedule was found. The second part
  /// comes first: it may have no schedule, since it cannot make what it begins with again, or take too long.
  bool split_at(std::uint32_t moment, double room, moment_cut& cut, run_clock& part) {
    const flat_graph& g = problem_.graph();
    cut.at(moment);
    const auto free = static_cast<std::int64_t>(room * static_cast<double>(problem_.budget() - cut.working_set()));
    const moment_optimum choice = find_moment_optimum(cut, free, bound_.multiplier, 1e-7 * g.needed_time,
                                                      options_.branch_nodes, [&] { return part.should_stop(); });
    if (!std::isfinite(choice.upper)) return false;
    const auto pieces = step_split::at(problem_, moment, choice.saved, rerun_order::on_demand);
    if (!pieces) return false;
    const solution after = solve_piece(pieces->after, part, 0.4);
    if (!after.plan) return false;
    if (after.time + pieces->before.graph().needed_time >= best.time) return true;
    const solution before = solve_piece(pieces->before, part, 1);
    if (!before.plan) return false;
    schedule joined = schedule_computes(problem_, pieces->join(*before.plan, *after.plan));
    if (!check(problem_, joined).valid()) return false;
    if (accept(problem_, best, joined, by_part(refined_solver::name, "split"))) starts_.push_back(std::move(joined));
    return true;
  }

  [[nodiscard]] solution solve_piece(const problem& piece, run_clock& clock, double share) {
    refined_options solving;
    solving.branch_nodes = options_.branch_nodes;
    solving.searches = options_.searches;
    solving.gap = options_.gap;
    solving.splits = options_.splits - 1;
    solving.run = clock.limits(share);
    solution s = solve_within_memory(clock, [&] { return refined(piece, solving); });
    clock.work(s.statistics.work);
    return s;
  }

  void evict_at_random() {
    if (best.plan && best.is_within(0.005)) return;
    evict_options wider;
    wider.random_passes = is_timed() ? std::numeric_limits<std::uint64_t>::max() : 200;
    run_eviction(*clock_, random_share, std::move(wider));
  }

  /// Runs `exact` for a part of the limits, if the graph is small enough for that. True: the problem is solved.
  bool search_exactly() {
    if (problem_.graph().num_operations > refined_solver::medium_step || best.is_within(0.001)) return false;
    exact_options searching;
    searching.start_from_heuristic = !is_small();
    if (!is_small() && best.plan) searching.patience = 0.1;  // the parts after it find better schedules
    run_clock part = clock_->part(is_small() ? small_share : exact_share, exact_solver::name);
    searching.run = part.control();
    if (is_small())
      searching.max_states = 50000;
    else if (!is_counted() && !is_timed())
      searching.run.work_limit = refine_options{}.default_moves / 4 * problem_.graph().num_operations;
    solution s = solve_within_memory(part, [&] { return exact(problem_, searching); });
    part.work(s.statistics.work);
    best.lower_bound = std::max(best.lower_bound, s.lower_bound);
    if (s.plan) take_part(best, s, [&] { accept(problem_, best, *s.plan, by_part(refined_solver::name, s.by)); });
    if (s.status == solve_status::infeasible) {
      best.status = s.status;
      best.message = std::move(s.message);
    }
    return s.status == solve_status::infeasible || meets_bound();
  }

  /// Simulated annealing from all schedules found, with `share` of what is left of the limits.
  void improve(double share) {
    if (starts_.empty()) return;
    refine_options refining;
    refining.lower_bound = best.lower_bound;
    refining.searches = options_.searches;
    refining.gap = options_.gap;
    run_clock part = clock_->part(share);
    refining.run = part.control();
    refining.run.seed += refinements_++;
    refine_result better = refine(problem_, starts_, refining);
    part.work(better.moves * work_of::move);
    if (better.out_of_memory) part.note_out_of_memory();
    stopped_ = better.stopped;
    if (accept(problem_, best, better.plan, by_part(refined_solver::name, "search")))
      starts_.push_back(std::move(better.plan));
  }

  const refined_options& options_;
  run_clock* clock_ = nullptr;  // of the piece that runs
  problem problem_;
  turnaround_analysis analysis_;
  turnaround_result bound_;
  std::vector<op_id> chain_;  // the moments of the bound of several moments
  std::vector<schedule> starts_;
  std::uint32_t refinements_ = 0;
  stop_reason stopped_ = stop_reason::none;
};

}  // namespace REMAT_NAMESPACE::detail
