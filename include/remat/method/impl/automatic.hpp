// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/automatic.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/method/chen.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/method/impl/refinement_steps.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/revolve.hpp"
#include "remat/method/rockmate.hpp"
#include "remat/method/rotor.hpp"
#include "remat/method/twremat.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE {
namespace detail::automatic_solve {

/// One solve of `automatic`: a proven bound, then the parts one after the other.
class portfolio {
 public:
  portfolio(const problem& p, const automatic_options& options)
      : clock_(options.run, automatic_solver::name),
        problem_(p),
        gap_(options.gap),
        extra_solvers_(options.extra_solvers) {
    clock_.watch(best_.time, best_.lower_bound);
    require_valid_options(automatic_solver::name, options);
    for (const automatic_part& part : extra_solvers_)
      if (!part.solve) throw bad_argument("auto: the part \"" + part.name + "\" has no solve");
  }
  portfolio(const portfolio&) = delete;  // callbacks refer to it
  portfolio& operator=(const portfolio&) = delete;

  solution run() {
    try {
      run_parts();
      finish();
    } catch (const std::bad_alloc&) {
      conclude_out_of_memory(best_, clock_);
    }
    return std::move(best_);
  }

 private:
  void run_parts() {
    stopped_ = clock_.poll();
    // Each part has a share of what the parts before it left of the limits; most end long before.
    if (stopped_ != stop_reason::none || prove(problem_, best_, clock_.limits(0.06))) return;
    problem_ = problem_.with_known_bound(best_.lower_bound);
    run_part(0.02, no_remat);
    run_part(0.25, evict);  // ends early but on large graphs and under tight budgets, where it helps most
    run_part(0.07, twremat);
    run_part(0.03, no_remat, {.reorder = true});  // if it fits, it takes the least time
    run_part(0.02, chen_greedy);
    run_part(0.02, chen_sqrt);
    run_part(0.02, revolve);
    if (!best_.plan) {  // their shares were too small, as on a machine with much else to do
      run_part(0.4, evict);
      if (!best_.plan) run_part(0.4, twremat);
    }
    refined_options refining;
    refining.gap = gap_;
    refinement_steps steps(problem_, refining);
    refine_for(0.15, steps, [&](run_clock& clock) { steps.open(clock); });
    if (!is_left_to_refinement()) run_chains();
    for (const automatic_part& part : extra_solvers_) run_extra(0.05, part);
    refine_for(1, steps, [&](run_clock& clock) { steps.go_on(clock); });
    if (stopped_ == stop_reason::none) stopped_ = clock_.poll();
  }

  /// Rotor's program over chains in its three forms. Refinement closes small gaps by itself, and large graphs gain
  /// little from it: there, the best of the three gets most of the time.
  void run_chains() {
    const bool is_large = problem_.graph().num_operations >= large_graph;
    hiremate_options groups;
    groups.cache = make_way_cache();
    groups.max_columns = 300;  // for the library's own branch and bound
    if (!is_large) {
      run_part(0.1, rotor, {.retain_rounds = 3});
      run_part(0.25, rockmate, {.retain_rounds = 3, .cache = groups.cache});
    }
    run_part(is_large ? 0.8 : 0.15, hiremate_with(branch_and_bound), std::move(groups));
  }

  static constexpr double at_bound = 0.0002;          // a gap at which another part can hardly be better
  static constexpr double near_bound = 0.003;         // a gap that refinement closes by itself
  static constexpr std::uint32_t small_graph = 500;   // operations: chains take little time
  static constexpr std::uint32_t large_graph = 2000;  // operations: refinement makes few moves in a second

  /// True: the best schedule meets the bound, or a limit is reached.
  [[nodiscard]] bool is_over() {
    if (best_.is_within(gap_)) return true;
    stopped_ = clock_.poll();
    return stopped_ != stop_reason::none;
  }

  /// True if the gap is small, chains would take a good part of the time, and refinement makes many moves in it.
  [[nodiscard]] bool is_left_to_refinement() const {
    const std::uint32_t n = problem_.graph().num_operations;
    return best_.is_within(at_bound) || (n >= small_graph && n < large_graph && best_.is_within(near_bound));
  }

  template <class Solver>
  void run_part(double share, const Solver& solver, typename Solver::options_type options = {}) {
    if (is_over()) return;
    solution s = solve_part(clock_, share, solver, problem_, std::move(options));
    take_part(best_, s, [&] {
      record(Solver::name, s);
      take_bound(best_, s);
      if (s.plan) accept(problem_, best_, *s.plan, by_part(automatic_solver::name, s.by));
    });
    if (s.plan) starts_.push_back(std::move(*s.plan));
  }

  /// Takes `steps` of `refined` on by `go`, with the schedules that other parts have found since the last time.
  template <class Go>
  void refine_for(double share, refinement_steps& steps, Go&& go) {
    if (is_over()) return;
    run_clock part = clock_.part(share, refined_solver::name);
    part.watch(steps.best.time, steps.best.lower_bound);
    for (schedule& start : starts_) steps.add_start(std::move(start));
    starts_.clear();
    try {
      go(part);
    } catch (const std::bad_alloc&) {
      part.note_out_of_memory();
    }
    steps.best.statistics.seconds = part.seconds();
    steps.best.statistics.work = part.work_done();
    record(refined_solver::name, steps.best);
    take_bound(best_, steps.best);
    if (steps.best.plan) accept(problem_, best_, *steps.best.plan, by_part(automatic_solver::name, steps.best.by));
  }

  /// Runs a part of the user's. Only its schedule counts.
  void run_extra(double share, const automatic_part& part) {
    if (is_over()) return;
    run_clock clock = clock_.part(share, part.name);
    const solution s = solve_extra(part, clock);
    clock.work(std::min(s.statistics.work, clock.control().work_limit));
    if (s.out_of_memory) clock.note_out_of_memory();
    record(part.name, s);
    if (!s.plan) return;
    const check_report report = check(problem_, *s.plan);
    if (!report.valid() && report.what != violation::over_budget)
      throw internal_error("auto: the part \"" + part.name + "\" made an invalid schedule: " + report.message());
    if (!report.valid()) return;
    keep_if_better(best_, *s.plan, report, by_part(automatic_solver::name, part.name));
    starts_.push_back(*s.plan);
  }

  /// The answer of a part of the user's; an `error` if it throws. What the progress callback throws is no failure of
  /// the part, and leaves the solve.
  [[nodiscard]] solution solve_extra(const automatic_part& part, const run_clock& clock) {
    solution failed;
    failed.status = solve_status::error;
    bool in_callback = false;
    run_control control = clock.control();
    if (control.on_progress)
      control.on_progress = [&in_callback, report = control.on_progress](const progress& news) {
        in_callback = true;
        report(news);
        in_callback = false;
      };
    try {
      return part.solve(problem_, control);
    } catch (const std::exception& e) {
      if (in_callback) throw;
      failed.message = e.what();
    } catch (...) {
      if (in_callback) throw;
      failed.message = "an exception that is no std::exception";
    }
    failures_ += (failures_.empty() ? "" : "; ") + ("the part \"" + part.name + "\" failed: ") + failed.message;
    failed.statistics.seconds = clock.seconds();
    return failed;
  }

  /// What a part did.
  void record(std::string_view part, const solution& s) {
    figures own;
    own.set("part", part);
    own.set("status", to_string(s.status));
    own.set("time", s.time);
    own.set("by", s.by);
    own.set("seconds", s.statistics.seconds);
    own.set("work", s.statistics.work);
    if (s.status == solve_status::error) own.set("message", s.message);
    own.set("figures", figures::group_list{s.statistics.own});
    parts_.push_back(std::move(own));
  }

  void finish() {
    best_.statistics.own.set("parts", std::move(parts_));
    conclude(problem_, best_, clock_, stopped_);
    if (!failures_.empty()) best_.message += (best_.message.empty() ? "" : "; ") + failures_;
  }

  run_clock clock_;
  problem problem_;
  double gap_;
  const std::vector<automatic_part>& extra_solvers_;
  solution best_;
  std::vector<schedule> starts_;
  figures::group_list parts_;
  std::string failures_;  // of the user's parts that threw
  stop_reason stopped_ = stop_reason::none;
};

}  // namespace detail::automatic_solve

REMAT_INLINE solution automatic_solver::operator()(const problem& p, const automatic_options& options) const {
  return detail::automatic_solve::portfolio(p, options).run();
}

}  // namespace REMAT_NAMESPACE
