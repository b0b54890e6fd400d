// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "remat/bound/detail/moment_branch.hpp"
#include "remat/bound/detail/moment_chain.hpp"
#include "remat/bound/detail/moment_cut.hpp"
#include "remat/bound/detail/moment_fill.hpp"
#include "remat/bound/detail/moment_joint.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/core/detail/directed_rounding.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/impl/race.hpp"
#include "remat/method/refined.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/step_split.hpp"
#include "remat/refine/detail/window_annealing.hpp"
#include "remat/refine/detail/window_search.hpp"
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
  refinement_steps(const problem& p, const refined_options& options)
      : options_(options), instance_(p), state_(p), analysis_(p), race_(state_, options.gap) {
    add_parts();
  }
  refinement_steps(const refinement_steps&) = delete;  // the parts of the race refer to it
  refinement_steps& operator=(const refinement_steps&) = delete;

  /// The best schedule so far, the bound and what is proven.
  [[nodiscard]] solution& best() noexcept { return best_; }
  /// The race of `go_on`, to which other parts may be added.
  [[nodiscard]] race& parts() noexcept { return race_; }

  /// Adds a schedule to start from. Throws `bad_argument` if it is illegal; one over the budget is ignored.
  void add_start(schedule start) {
    const check_report report = check(problem_, start);
    if (report.what == violation::over_budget) return;
    if (!report.valid()) throw bad_argument("refined: a schedule to start from is illegal: " + report.message());
    keep_if_better(best_, start, report, by_part(refined_solver::name, "start"));
    state_.add_start(std::move(start), report.time);
  }

  /// Takes a bound that is proven for at least this budget.
  void take_proven(double lower_bound) {
    best_.lower_bound = std::max(best_.lower_bound, lower_bound);
    problem_ = problem_.with_known_bound(best_.lower_bound);
  }

  /// The bound, the exact search of a small graph, eviction, and a first refinement. Returns why it stopped early.
  stop_reason open(run_clock& clock) {
    clock_ = &clock;
    stopped_ = clock.poll();
    if (is_stopped() || prove_bound() || (is_small() && search_small())) return stopped_;
    for (const schedule& start : options_.starts) add_start(start);
    evict_under_guidance();
    if ((is_timed() || is_counted()) && !is_settled()) {
      run_clock part = clock.part(opening_share);
      take(refine_further(state_, part).found);
    }
    return stopped_ = clock.poll();
  }

  /// Lets the parts race for better schedules and bounds, with all that is left. Returns why it stopped early.
  /// `opening`: the clock of what came before, if that is another one.
  stop_reason go_on(run_clock& clock, const run_clock* opening = nullptr) {
    clock_ = &clock;
    if (is_settled()) return stopped_;
    return stopped_ = race_.run(clock, opening != nullptr ? *opening : clock);
  }

 private:
  static constexpr double bound_share = 0.2, eviction_share = 0.25, guided_share = 0.2, small_share = 0.75,
                          opening_share = 0.15, fillings_share = 0.2, large_fillings_share = 0.8;
  static constexpr std::uint32_t chain_moments = 48;
  static constexpr std::uint32_t most_for_joint_moments = 2000;  // operations
  static constexpr std::uint32_t promising_exact = 128;          // operations: `exact` often ends in a few seconds
  /// Gaps below which a part does not run.
  static constexpr double chains_gap = 0.0005, windows_gap = 0.0005, exact_gap = 0.001, joint_gap = 0.1,
                          wide_gap = 0.005, near_gap = 0.01;
  static constexpr std::uint32_t most_for_windows = 1U << 17, most_for_window_annealing = 5000;  // operations
  static constexpr std::size_t most_starts = 8, most_candidates = 4;

  [[nodiscard]] bool is_small() const noexcept { return problem_.graph().num_operations <= refined_solver::small_step; }
  [[nodiscard]] bool is_large() const noexcept { return problem_.graph().num_operations > refined_solver::large_step; }
  [[nodiscard]] bool is_counted() const noexcept { return clock_->control().has_work_limit(); }
  [[nodiscard]] bool is_timed() const noexcept { return !is_counted() && clock_->control().has_time_limit(); }
  [[nodiscard]] bool meets_bound() const noexcept { return best_.is_within(options_.gap); }
  [[nodiscard]] bool is_stopped() const noexcept { return stopped_ != stop_reason::none; }
  /// True: a limit is spent, or there is nothing to do.
  [[nodiscard]] bool is_settled() {
    stopped_ = clock_->poll();
    return is_stopped() || meets_bound() || !std::isfinite(best_.lower_bound);
  }

  /// The turnaround bound, with branch and bound. True: no schedule is within the budget.
  bool prove_bound() {
    run_clock part = clock_->part(bound_share);
    turnaround_options proving;
    proving.branch_nodes = options_.branch_nodes;
    proving.run = part.control();
    bound_ = analysis_.bound(problem_.budget(), proving);
    note_bound(problem_, bound_, best_);
    if (prove(problem_, best_)) return true;
    problem_ = problem_.with_known_bound(best_.lower_bound);
    return false;
  }

  /// Notes in `s` what a bound has proven.
  static void note_bound(const problem& p, const turnaround_result& found, solution& s) {
    s.proven = true;
    s.lower_bound = std::max({s.lower_bound, found.lower_bound, p.graph().needed_time, p.known_bound().value_or(0)});
    if (!found.infeasible) return;
    s.message = found.least_memory.message(p.operation_name(found.least_memory.operation));
    s.obstacle = found.least_memory.operation;
  }

  /// Takes what a step has found.
  void take(solution found) {
    if (!found.plan) return;
    take_part(best_, found, [&] { accept(problem_, best_, *found.plan, found.by); });
    state_.add_start(std::move(*found.plan), found.time);
  }

  /// Returns the time of the schedule; infinite if there is none.
  double run_eviction(run_clock& clock, double share, evict_options options) {
    solution s = solve_part(clock, share, evict, problem_, std::move(options));
    if (!s.plan) return std::numeric_limits<double>::infinity();
    const double time = s.time;
    s.by = by_part(refined_solver::name, s.by);
    take(std::move(s));
    return time;
  }

  /// `evict` plain; then holding on to what the bound's moment keeps.
  void evict_under_guidance() {
    // Without any schedule nothing can be refined: all of the limits for the first. On large graphs, a schedule to
    // start from is most often the work of a plain `evict`, which would take as long again.
    if (!best_.plan)
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

  /// Runs `exact` on a small graph. True: the problem is solved.
  bool search_small() {
    if (best_.is_within(exact_gap)) return false;
    run_clock part = clock_->part(small_share, exact_solver::name);
    exact_options searching;
    searching.start_from_heuristic = false;
    searching.max_states = 50000;
    solution s = run_exact(problem_, part, searching);
    best_.lower_bound = std::max(best_.lower_bound, s.lower_bound);
    const bool infeasible = s.status == solve_status::infeasible;
    if (infeasible) {
      best_.status = s.status;
      best_.message = s.message;
    }
    take(std::move(s));
    return infeasible || meets_bound();
  }

  /// The parts of `go_on`. They may run on different threads, so each changes nothing but its own members.
  void add_parts() {
    const auto beyond = [](double gap) { return [gap](const race_state& now) { return !now.best.is_within(gap); }; };
    using step = race_slice (refinement_steps::*)(const race_state&, run_clock&);
    const auto run = [this](step s) {
      return [this, s](const race_state& now, run_clock& part) { return (this->*s)(now, part); };
    };
    race_.add({.name = "chains of moments",
               .first_share = 0.2,
               .run = run(&refinement_steps::bound_chains),
               .is_useful = beyond(chains_gap),
               .publish = [this](race_state& state) {
                 state.moments = chain_.chain;
                 state.links = chain_.links;
               }});
    if (!is_small() && problem_.graph().num_operations <= most_for_joint_moments)
      race_.add({.name = "joint moments",
                 .first_share = 0.1,
                 .run = run(&refinement_steps::bound_jointly),
                 .is_useful = [this](const race_state& now) {
                   return now.best.plan && now.best.is_within(joint_gap) && !now.best.is_within(exact_gap) &&
                          bound_.recomputation > 0;
                 }});
    if (!is_small() && problem_.graph().num_operations <= refined_solver::medium_step)
      race_.add({.name = exact_solver::name,
                 .weight = 2,
                 .first_share = problem_.graph().num_operations <= promising_exact ? 0.6 : 0.1,
                 .run = run(&refinement_steps::search_exactly),
                 .is_useful = beyond(exact_gap)});
    if (options_.splits > 0 && !is_small())
      race_.add({.name = "split",
                 .weight = 1.5,
                 .first_share = 0.4,
                 .run = run(&refinement_steps::split),
                 // Once also near the bound: what it finds is far from what others improve.
                 .is_useful = [this](const race_state& now) {
                   return !now.best.is_within(splits_ == 0 ? exact_gap : wide_gap);
                 }});
    race_.add({.name = "random eviction",
               .weight = 0.7,
               .first_share = 0.05,
               .run = run(&refinement_steps::evict_at_random),
               .is_useful = beyond(wide_gap)});
    if (problem_.graph().num_operations <= most_for_windows)
      race_.add({.name = "windows",
                 .weight = 2,
                 .first_share = 0.15,
                 .run = run(&refinement_steps::solve_windows),
                 .is_useful = [this](const race_state& now) {
                   return now.best.plan && !now.best.is_within(windows_gap) &&
                          (anneals_windows() || !has_windows_solved(now));
                 }});
    race_.add({.name = "refinement",
               .weight = 4,
               .growth = 4,
               .is_closing = true,
               .run = run(&refinement_steps::refine_further),
               .is_useful = [](const race_state& now) { return !now.starts.empty(); }});
  }

  /// The bound of chains of moments, which takes longer than that of one and gains most under tight budgets.
  race_slice bound_chains(const race_state& now, run_clock& part) {
    turnaround_options proving;
    proving.want_saved = false;
    proving.branch_nodes = options_.branch_nodes;  // the segments' tensors are held whole
    proving.chain_moments = chain_moments;
    proving.run = part.control();
    const turnaround_result found = analysis_.bound(instance_.budget(), proving);
    if (!found.chain.empty()) chain_ = found;
    if (chain_.links == nullptr) chain_.links = std::make_shared<const moment_chain>();  // `exact` looks for no other
    race_slice slice;
    note_bound(now.instance, found, slice.found);
    if (found.infeasible) slice.found.status = solve_status::infeasible;
    slice.ended = !may_be_cut_off(part);
    return slice;
  }

  /// The bound of several moments together, with whole tensors, for schedules faster than the best one. It begins with
  /// the best chain, or with the best moment. Each slice goes on where the last one ended.
  race_slice bound_jointly(const race_state& now, run_clock& part) {
    if (!joint_) {
      std::vector<std::uint32_t> moments{static_cast<std::uint32_t>(index(bound_.moment))};
      if (now.links != nullptr && !now.links->moments.empty()) moments = now.links->moments;
      joint_.emplace(instance_, std::move(moments));
    }
    std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    if (part.control().has_work_limit())
      most = std::min(part.work_left(), most / mip_operations_per_work) * mip_operations_per_work;
    const std::uint64_t before = joint_->work();
    const double needed = instance_.graph().needed_time, enough = closing_bound(now);
    const auto proven = [&] { return std::min(enough, sum_below(needed, joint_->bound())); };
    joint_->run(sum_below(enough, -needed), most, [&] {
      part.report({.lower_bound = proven()});
      return part.should_stop();
    });
    part.work((joint_->work() - before) / mip_operations_per_work);
    race_slice slice;
    slice.found.proven = true;
    slice.found.lower_bound = proven();
    slice.ended = joint_->ended();
    return slice;
  }

  /// The bound that closes the gap: a higher one is not needed.
  [[nodiscard]] double closing_bound(const race_state& now) const {
    return time_below(now.best.time, now.best.statistics.computes) / (1 + options_.gap);
  }

  [[nodiscard]] static solution run_exact(const problem& p, run_clock& part, exact_options searching) {
    searching.run = part.control();
    if (!searching.run.is_limited())
      searching.run.work_limit = refine_options{}.default_moves / 4 * p.graph().num_operations;
    solution s = solve_within_memory(part, [&] { return exact(p, searching); });
    part.work(s.statistics.work);
    s.by = by_part(refined_solver::name, s.by);
    return s;
  }

  race_slice search_exactly(const race_state& now, run_clock& part) {
    exact_options searching;
    searching.start_from_heuristic = false;
    searching.chain = now.links;
    if (now.best.plan) {
      searching.faster_than = closing_bound(now);
      // Other parts find better schedules. On a small graph the first states may close little of the gap, the next ones
      // much of it.
      searching.patience = now.instance.graph().num_operations <= promising_exact ? 0.02 : 0.1;
    }
    race_slice slice{run_exact(now.instance, part, searching)};
    slice.ended = !may_be_cut_off(part);
    return slice;
  }

  /// Splits the step at the moments that give the bound, the last one first, and solves both parts.
  race_slice split(const race_state& now, run_clock& part) {
    race_slice slice;
    std::vector<op_id> moments = now.moments;
    if (moments.empty() && bound_.recomputation > 0) moments.push_back(bound_.moment);
    moment_cut cut(instance_.graph());
    for (std::size_t i = moments.size(); i-- > 0 && !part.should_stop();) {
      run_clock one = part.part(i == 0 ? 1 : 0.5);  // the last moments gain most
      // A choice that fills the budget may leave the second part too little: then one that holds less.
      for (const double room : {1.0, 0.99, 0.96, 0.9}) {
        run_clock attempt = one.part(room > 0.95 ? 0.5 : 1);
        if (attempt.should_stop()) break;
        const double limit = std::min(now.best.time, slice.found.time);
        if (split_at(static_cast<std::uint32_t>(index(moments[i])), room, limit, cut, attempt, slice.found)) break;
      }
    }
    ++splits_;
    slice.ended = moments.empty();
    return slice;
  }

  /// Holds at most `room` of the bytes that the moment leaves. Returns true if both parts have a schedule, or cannot be
  /// faster than `limit`. The second part comes first: it may have no schedule, since it cannot make what it begins
  /// with again, or take too long.
  bool split_at(std::uint32_t moment, double room, double limit, moment_cut& cut, run_clock& part, solution& found) {
    const flat_graph& g = instance_.graph();
    cut.at(moment);
    const auto free = static_cast<std::int64_t>(room * static_cast<double>(instance_.budget() - cut.working_set()));
    const moment_optimum choice = find_moment_optimum(cut, free, bound_.multiplier, 1e-7 * g.needed_time,
                                                      options_.branch_nodes, [&] { return part.should_stop(); });
    if (!std::isfinite(choice.upper)) return false;
    const auto pieces = step_split::at(instance_, moment, choice.saved, rerun_order::on_demand);
    if (!pieces) return false;
    const solution after = solve_piece(pieces->after, part, 0.4);
    if (!after.plan) return false;
    if (after.time + pieces->before.graph().needed_time >= limit) return true;
    const solution before = solve_piece(pieces->before, part, 1);
    if (!before.plan) return false;
    schedule joined = schedule_computes(instance_, pieces->join(*before.plan, *after.plan));
    const check_report report = check(instance_, joined);
    if (!report.valid()) return false;
    keep_if_better(found, std::move(joined), report, by_part(refined_solver::name, "split"));
    return true;
  }

  [[nodiscard]] solution solve_piece(const problem& piece, run_clock& clock, double share) {
    refined_options solving;
    solving.branch_nodes = options_.branch_nodes;
    solving.searches = options_.searches;
    solving.gap = options_.gap;
    solving.splits = options_.splits - 1;
    solving.run = clock.limits(share);
    solving.run.seed += splits_;
    solution s = solve_within_memory(clock, [&] { return refined(piece, solving); });
    clock.work(s.statistics.work);
    return s;
  }

  race_slice evict_at_random(const race_state& now, run_clock& part) {
    const run_control& limits = part.control();
    const bool is_timed = !limits.has_work_limit() && limits.has_time_limit();
    evict_options wider;
    wider.random_passes = is_timed ? std::numeric_limits<std::uint64_t>::max() : 200;
    wider.run = limits;
    wider.run.seed += random_evictions_++;
    race_slice slice;
    slice.found = solve_within_memory(part, [&] { return evict(now.instance, wider); });
    part.work(slice.found.statistics.work);
    slice.found.by = by_part(refined_solver::name, slice.found.by);
    return slice;
  }

  /// True if windows of the best schedule have been solved.
  [[nodiscard]] bool has_windows_solved(const race_state& now) const {
    return now.best.time == windows_time_ && windows_ended_;
  }
  [[nodiscard]] bool anneals_windows() const noexcept {
    return instance_.graph().num_operations <= most_for_window_annealing;
  }

  /// Solves windows of the best schedule; then anneals with windows.
  race_slice solve_windows(const race_state& now, run_clock& part) {
    race_slice slice;
    if (!now.best.plan) return slice;
    if (!has_windows_solved(now)) {
      if (!windows_) windows_.emplace(instance_, all_widths());
      if (now.best.time != windows_time_) windows_->start(computes_of(*now.best.plan));
      windows_ended_ = windows_->run(part);
      windows_time_ = std::min(now.best.time, keep_windows(*windows_, now.instance, slice.found));
    }
    if (part.should_stop() || !anneals_windows()) return slice;
    const bool is_better = slice.found.plan.has_value() && slice.found.time < now.best.time;
    const solution& from = is_better ? slice.found : now.best;
    anneal_windows(*from.plan, from.time, now, 2 * annealed_++, part, slice.found);
    return slice;
  }

  /// Disturbs a schedule and solves windows, again and again, in searches of different seeds.
  void anneal_windows(const schedule& from, double time, const race_state& now, std::uint64_t seed, run_clock& part,
                      solution& found) {
    run_control control = part.limits();
    control.on_progress = part.control().on_progress;
    control.seed += seed;
    run_clock own(control);
    for (const windows_found& one :
         anneal_windows_together(instance_, from, time, now.best.lower_bound * (1 + options_.gap), own)) {
      if (one.time >= std::min(time, found.time)) continue;
      schedule plan = schedule_computes(instance_, one.computes);
      const check_report report = check(now.instance, plan);
      if (!report.valid()) throw internal_error("windows made an invalid schedule: " + report.message());
      keep_if_better(found, std::move(plan), report, by_part(refined_solver::name, "windows"));
    }
    part.work(own.work_done());
  }

  /// Anneals with windows from a schedule that has been refined. Where the gap is wide, also from the best ones of
  /// other parts: each round takes half of the limits that are left, and the faster half of the schedules goes on.
  void anneal_windows_of_best(const race_state& now, const schedule& refined_plan, double time, run_clock& part,
                              solution& found) {
    struct candidate {
      schedule plan;
      double time;
    };
    std::vector<candidate> candidates{{refined_plan, time}};
    if (!now.best.is_within(near_gap))
      for (const race_state::origin& x : now.origins)
        if (candidates.size() < most_candidates &&
            std::none_of(candidates.begin(), candidates.end(), [&](const candidate& c) { return c.time == x.time; }))
          candidates.push_back({*x.plan, x.time});
    std::uint64_t seed = 2 * refinements_ + 1;
    while (!part.should_stop()) {
      const auto n = static_cast<double>(candidates.size());
      run_clock round = part.part(n == 1 ? 1 : 0.5);
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        run_clock one = round.part(1 / (n - static_cast<double>(i)));
        solution better;
        better.time = candidates[i].time;
        anneal_windows(candidates[i].plan, candidates[i].time, now, seed, one, better);
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

  [[nodiscard]] static window_effort all_widths() {
    return {.widths = {8, 12, 16, 24, 32, 48, 64, 96, 128}, .steps = 3, .max_states = {1'000, 10'000}};
  }

  /// Keeps the schedule of `windows` if it is better. Returns its time.
  static double keep_windows(const window_search& windows, const problem& p, solution& found) {
    schedule plan = schedule_computes(p, windows.computes());
    const check_report report = check(p, plan);
    if (!report.valid()) throw internal_error("windows made an invalid schedule: " + report.message());
    keep_if_better(found, std::move(plan), report, by_part(refined_solver::name, "windows"));
    return report.time;
  }

  /// The share of moves alone in what windows follow: near the bound, one long cooling finds more than disturbances.
  [[nodiscard]] double share_before_windows(const race_state& now) const {
    if (!anneals_windows()) return 0.9;
    return now.best.is_within(near_gap) ? 0.75 : 0.35;
  }

  /// Simulated annealing from all schedules found; then windows of the best one.
  race_slice refine_further(const race_state& now, run_clock& part) {
    race_slice slice;
    if (now.starts.empty()) return slice;
    const bool solves_windows =
        instance_.graph().num_operations <= most_for_windows && !now.best.is_within(windows_gap);
    refine_options refining;
    refining.lower_bound = now.best.lower_bound;
    refining.searches = options_.searches;
    refining.gap = options_.gap;
    refining.run = part.control();
    if (solves_windows) {
      refining.run = part.limits(share_before_windows(now));
      refining.run.on_progress = part.control().on_progress;
    }
    refining.run.seed += refinements_++;
    refine_result better = refine(now.instance, now.different_starts(most_starts), refining);
    part.work(better.moves * work_of::move);
    if (better.out_of_memory) part.note_out_of_memory();
    const check_report report = check(now.instance, better.plan);
    const schedule refined_plan = better.plan;
    keep_if_better(slice.found, std::move(better.plan), report, by_part(refined_solver::name, "search"));
    if (!solves_windows || part.should_stop()) return slice;
    if (anneals_windows()) {
      anneal_windows_of_best(now, refined_plan, report.time, part, slice.found);
    } else {
      if (!last_windows_) last_windows_.emplace(instance_, all_widths());
      last_windows_->start(computes_of(refined_plan));
      last_windows_->run(part);
      keep_windows(*last_windows_, now.instance, slice.found);
    }
    return slice;
  }

  const refined_options& options_;
  const problem instance_;  // for the parts of the race, which may not read what changes
  race_state state_;
  problem& problem_ = state_.instance;
  solution& best_ = state_.best;
  run_clock* clock_ = nullptr;  // of the piece that runs
  turnaround_analysis analysis_;
  turnaround_result bound_;
  turnaround_result chain_;  // the bound of several moments
  std::optional<moment_joint> joint_;
  std::optional<window_search> windows_, last_windows_;  // of the best schedule, and of refinement's
  double windows_time_ = 0;                              // of the schedule on which windows_ works
  bool windows_ended_ = false;                           // it has solved all of them
  std::uint64_t refinements_ = 0, annealed_ = 0, splits_ = 0, random_evictions_ = 0;
  stop_reason stopped_ = stop_reason::none;
  race race_;
};

}  // namespace REMAT_NAMESPACE::detail
