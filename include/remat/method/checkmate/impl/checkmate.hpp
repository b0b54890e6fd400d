// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/checkmate.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <stop_token>

#include "remat/bound/turnaround.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/random.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/method/checkmate/impl/checkmate_model.hpp"
#include "remat/method/checkmate/impl/rerun_limits.hpp"
#include "remat/method/detail/backend_failures.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/rockmate.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE::detail::checkmate_search {

inline constexpr std::string_view name = "checkmate";
inline constexpr double share_of_warm_start = 0.5, share_of_rockmate = 0.25;
inline constexpr double share_of_relaxations = 0.4, share_of_near = 0.5, share_of_windows = 0.6;
/// The share of a near program, of a window, and of the limits of runs again in what is left of the limits of its step.
inline constexpr double share_of_one = 0.3;
/// Near programs are not built for more operations: their tables are quadratic.
inline constexpr std::uint32_t max_operations = 1500;
/// Thresholds of the deterministic rounding; the first one is the paper's.
inline constexpr double thresholds[] = {0.5, 0.25, 0.1, 0.75};

/// The operations that run again in each phase of an order. Its first runs are in the listed order; each of them ends a
/// phase.
class rerun_table {
 public:
  /// Nothing if the first runs of the needed operations are not in the listed order, or if an operation runs again
  /// after all of them.
  static std::optional<rerun_table> of(const flat_graph& g, std::span<const std::uint32_t> order) {
    rerun_table table;
    table.again_.resize(g.num_operations);
    std::uint32_t phase = 0;
    const auto skip = [&] {
      while (phase < g.num_operations && !g.needed[phase]) ++phase;
    };
    skip();
    for (const std::uint32_t o : order) {
      if (!g.needed[o]) continue;
      if (o == phase) {
        ++phase;
        skip();
      } else if (o > phase || phase == g.num_operations) {
        return std::nullopt;
      } else {
        table.again_[phase].push_back(o);
        table.time_ += g.time[o];
      }
    }
    if (phase != g.num_operations) return std::nullopt;
    for (std::vector<std::uint32_t>& row : table.again_) std::sort(row.begin(), row.end());
    return table;
  }

  [[nodiscard]] bool runs_again(op_id phase, op_id o) const {
    const std::vector<std::uint32_t>& row = again_[index(phase)];
    return std::binary_search(row.begin(), row.end(), static_cast<std::uint32_t>(index(o)));
  }
  [[nodiscard]] double time() const noexcept { return time_; }

 private:
  double time_ = 0;
  std::vector<std::vector<std::uint32_t>> again_;  // the operations that run again, by phase; ascending
};

/// The decisions of the program that are made anew: all of some phases, or all of some operations.
struct window {
  bool of_phases = true;
  std::uint32_t begin = 0, end = 0;  // operations

  [[nodiscard]] bool contains(op_id phase, op_id o) const noexcept {
    const auto at = static_cast<std::uint32_t>(index(of_phases ? phase : o));
    return at >= begin && at < end;
  }
};

/// The operations from which another operation can be reached over at most some reads, as a table.
class near_table {
 public:
  near_table(const flat_graph& g, std::uint32_t distance) : size_(g.num_operations), near_(size_ * size_, 0) {
    std::vector<std::uint32_t> layer, next;
    for (std::uint32_t a = 0; a < g.num_operations; ++a) {
      layer = {a};
      for (std::uint32_t i = 0; i < distance && !layer.empty(); ++i) {
        next.clear();
        for (const std::uint32_t reader : layer)
          for (const std::uint32_t t : g.inputs[reader])
            for (const std::uint32_t o : g.producers[t])
              if (!std::exchange(near_[std::size_t{a} * size_ + o], std::uint8_t{1})) next.push_back(o);
        std::swap(layer, next);
      }
    }
  }
  [[nodiscard]] bool contains(op_id a, op_id o) const { return near_[index(a) * size_ + index(o)] != 0; }

 private:
  std::size_t size_;
  std::vector<std::uint8_t> near_;
};

/// The solver's own method.
class search {
 public:
  search(mip_backend_ref backend, const problem& p, const checkmate_options& options, run_clock& clock, solution& best)
      : backend_(backend.noting(failures_)), problem_(p), options_(options), clock_(clock), best_(best) {}

  /// Finds the best schedule. Returns why it stopped early.
  stop_reason run() {
    if (prove(problem_, best_, clock_.limits())) return clock_.poll();
    for (const schedule& s : options_.starts) take(s, by_part(name, "start"));
    if (options_.warm_start) warm_up();
    if (!is_settled()) {
      decide();
      note("wrong_solutions", wrong_);
      if (wrong_ != 0)
        best_.message += (best_.message.empty() ? "" : "; ") + detail::count_of(wrong_, "solution") +
                         " of the backend " + (wrong_ == 1 ? "was no schedule" : "were no schedules");
      report_failures(failures_, best_);
    }
    return clock_.poll();
  }

 private:
  [[nodiscard]] bool is_settled() const { return clock_.should_stop() || best_.is_within(options_.gap); }
  template <class Value>
  void note(std::string_view figure, Value value) {
    best_.statistics.own.set(figure, value);
  }

  // ---- The best schedule

  /// Takes a legal schedule if it is better, and within the budget. If its first runs are in the listed order, windows
  /// are decided around its runs.
  bool take(schedule plan, const std::string& by) {
    std::optional<rerun_table> table = rerun_table::of(problem_.graph(), computes_of(plan));
    if (!accept(problem_, best_, std::move(plan), by)) return false;
    around_ = std::move(table);
    return true;
  }
  /// Takes the schedule of an order of runs if it is better. Returns false if it is not valid.
  bool take_order(std::span<const std::uint32_t> order, std::string_view part) {
    schedule plan = schedule_computes(problem_, order);
    if (check(problem_, plan).what != violation::none) return false;
    // A first run in vain is left out of the schedule, whose order may then be another one.
    if (take(std::move(plan), by_part(name, part)) && !around_) around_ = rerun_table::of(problem_.graph(), order);
    return true;
  }

  /// The schedules of `rockmate` and `refined` as a start.
  void warm_up() {
    run_clock part = clock_.part(share_of_warm_start);
    const auto keep = [&](solution found) {
      if (found.plan) take_part(best_, found, [&] { take(*found.plan, by_part(by_part(name, "start"), found.by)); });
    };
    keep(solve_part(part, share_of_rockmate, rockmate, problem_, {}));
    refined_options refining;
    refining.gap = options_.gap;
    if (best_.plan) refining.starts.push_back(*best_.plan);
    keep(solve_part(part, 1, refined, problem_, std::move(refining)));
  }

  // ---- The steps

  void decide() {
    moments_ = best_moments();
    const double estimate = checkmate_model::size_estimate(problem_);
    const bool is_small = estimate <= options_.max_columns;
    if (is_small && !round_relaxations()) return;
    if (!is_settled() && options_.distance > 0 && problem_.graph().num_operations <= max_operations) solve_near();
    if (!is_settled() && options_.windows && is_small) solve_windows();
    if (is_small) {
      if (!is_settled()) solve_program();
      return;
    }
    note("program_ending", "too large");
    best_.message = "the integer program would have some " +
                    detail::count_of(static_cast<std::uint64_t>(estimate), "column") + ", more than max_columns";
    if (problem_.graph().num_operations > max_operations)
      best_.message += "; near programs are built for up to " + detail::count_of(max_operations, "operation");
  }

  /// The time that the program's solutions may take: that of the best schedule, first runs in vain included.
  [[nodiscard]] double at_most() const {
    if (!best_.plan) return std::numeric_limits<double>::infinity();
    return around_ ? std::max(best_.time, problem_.graph().needed_time + around_->time()) : best_.time;
  }

  /// The clock of a step. Work that another step has cut short is done again.
  [[nodiscard]] run_clock begin_step(double share) {
    if (limits_ && !limits_->is_complete()) limits_.reset();
    return clock_.part(share);
  }

  /// The runs again that no schedule within `at_most()` has. Found once for each such time.
  const rerun_limits& limits(run_clock& part) {
    const double time = at_most();
    if (limits_ && limits_time_ == time) return *limits_;
    limits_.emplace(problem_, time, part.limits(share_of_one));
    limits_time_ = time;
    part.work(limits_->work());
    return *limits_;
  }

  [[nodiscard]] double max_columns() const { return 2 * options_.max_columns; }
  /// The reason why a program is not complete.
  [[nodiscard]] std::string_view ending_of_building(const checkmate_model& program) const {
    return static_cast<double>(program.model().num_columns()) > max_columns() ? "too large" : "stopped";
  }

  [[nodiscard]] checkmate_model build(const problem& p, double at_most, const run_clock& part,
                                      std::function<rerun(op_id, op_id)> rule) const {
    checkmate_model_options building;
    building.units = options_.units;
    building.at_most = at_most;
    building.moments = moments_;
    building.rule = std::move(rule);
    building.max_columns = max_columns();
    building.run = part.limits();
    building.run.work_limit = run_control::no_work_limit;
    return checkmate_model(p, building);
  }

  /// Solves a model within a share of what is left of `part`, and stops when the best schedule is within the gap.
  mip_result solve(const mip_model& m, mip_options solving, run_clock& part, double share, std::string_view stage) {
    solving.run = part.limits(share);
    std::stop_source good;
    const std::stop_callback pass_on(clock_.control().stop, [&good] { good.request_stop(); });
    solving.run.stop = good.get_token();
    solving.on_incumbent = [&, take_values = std::move(solving.on_incumbent)](auto values, double objective) {
      if (take_values) take_values(values, objective);
      if (is_settled()) good.request_stop();
    };
    if (part.is_heard())
      solving.run.on_progress = [&](const progress& news) { part.report({.stage = stage, .done = news.done}); };
    mip_result r = backend_.solve(m, solving);
    part.work(r.work);
    part.report({.stage = stage, .done = r.nodes});
    return r;
  }

  // ---- The relaxation, and its rounding

  /// Returns false if the program has no solution, or nothing to decide.
  bool round_relaxations() {
    run_clock part = begin_step(share_of_relaxations);
    const double start = clock_.seconds();
    for (std::uint32_t i = 0; i < std::max(options_.relaxations, 1U) && !part.should_stop() && !is_settled(); ++i) {
      const double left_free = options_.relaxation_step * i;  // a share of the budget
      if (left_free >= 1) break;
      const double bytes = (1 - left_free) * static_cast<double>(problem_.budget());
      const problem tighter = i == 0 ? problem_ : problem_.with_budget(static_cast<std::int64_t>(bytes));
      const checkmate_model program = build(tighter, std::numeric_limits<double>::infinity(), part, {});
      if (!program.is_complete()) {
        if (i == 0) note("relaxation_solved", false);
        break;
      }
      if (i == 0 && program.decisions() == 0) return take_only_solution(program);
      if (options_.relaxations == 0) break;
      mip_model relaxed = program.model();
      for (std::size_t j = 0; j < relaxed.num_columns(); ++j) relaxed.set_integer(static_cast<std::uint32_t>(j), false);
      const mip_result r = solve(relaxed, {}, part, i == 0 ? 1 : share_of_relaxations, "relaxation");
      if (i == 0) note_relaxation(program, r);
      note("rounding_relaxations", i + 1);
      if (i == 0 && r.status == mip_status::infeasible) return conclude_infeasible();
      if (r.status != mip_status::optimal) break;
      if (round(program, r.values, left_free, part)) break;
    }
    note("rounding_seconds", clock_.seconds() - start);
    return true;
  }

  bool take_only_solution(const checkmate_model& program) {
    note("program_ending", "nothing to decide");
    if (!take_order(program.order(std::vector<double>(program.model().num_columns(), 0)), "program"))
      best_.message = "nothing can run again, and the listed order is not within the budget";
    return false;
  }
  bool conclude_infeasible() {
    note("program_ending", to_string(mip_status::infeasible));
    best_.message = "integer program (" + std::string(backend_.name()) +
                    "): its relaxation is infeasible: no schedule in the listed order of first runs";
    return false;
  }
  void note_relaxation(const checkmate_model& program, const mip_result& r) {
    note("relaxation_solved", r.status == mip_status::optimal);
    if (r.status == mip_status::optimal) note("relaxation_time", program.time(r.objective));
    note("relaxation_columns", program.model().num_columns());
    note("relaxation_rows", program.model().num_rows());
    note("relaxation_seconds", r.seconds);
  }

  /// Rounds the values of a relaxation in several ways. Returns true if some schedule fits.
  bool round(const checkmate_model& program, std::span<const double> values, double left_free, const run_clock& part) {
    bool some = false;
    const auto attempt = [&](const std::function<bool(double)>& keep) {
      const std::vector<std::uint32_t> order = program.round(values, keep);
      const check_report said = check(problem_, schedule_computes(problem_, order));
      ++tries_;
      if (said.what != violation::none) return;
      ++fitting_;
      some = true;
      if (said.time < rounded_) {
        rounded_ = said.time;
        note("rounding_time", rounded_);
        note("rounding_left_free", left_free);
      }
      take_order(order, "rounding");
    };
    for (const double threshold : thresholds) attempt([&](double x) { return x > threshold; });
    random_source random(clock_.control().seed);
    // Roundings are no moves: only the time of the step ends them.
    const auto is_over = [&] { return clock_.should_stop() || part.left() <= std::chrono::nanoseconds(0); };
    for (std::uint32_t i = 0; i < options_.random_roundings && !is_over(); ++i)
      attempt([&](double x) { return random.uniform() < x; });
    note("rounding_tries", tries_);
    note("rounding_fitting", fitting_);
    return some;
  }

  // ---- Programs with fewer decisions

  /// Solves a program for a better schedule, whose part is `part_name`, within a share of what is left of `part`.
  mip_result solve_for_schedule(const checkmate_model& program, run_clock& part, double share, std::uint64_t max_nodes,
                                std::string_view part_name, std::string_view stage) {
    mip_options solving;
    if (best_.plan)
      if (auto values = program.encode(*best_.plan)) solving.start = std::move(*values);
    solving.max_nodes = max_nodes;
    solving.on_incumbent = [&](std::span<const double> values, double) {
      if (!take_order(program.order(values), part_name)) ++wrong_;
    };
    return solve(program.model(), std::move(solving), part, share, stage);
  }

  void solve_near() {
    run_clock part = begin_step(share_of_near);
    figures::group_list programs;
    const std::uint32_t max_distance = std::min(options_.distance, max_operations);  // no operation is farther away
    for (std::uint32_t d = 1; d <= max_distance && !part.should_stop() && !is_settled(); d += d < 4 ? 1 : d / 2) {
      const near_table near(problem_.graph(), d);
      bool complete = true;
      for (const bool around : {false, true})
        if (complete && !(around && !around_) && !part.should_stop() && !is_settled())
          complete = solve_near(near, d, around, part, programs);
      if (!complete) break;
    }
    note("near", std::move(programs));
  }

  /// Returns false if the program could not be built.
  bool solve_near(const near_table& near, std::uint32_t distance, bool around, run_clock& part,
                  figures::group_list& programs) {
    const rerun_limits& known = limits(part);
    const std::optional<rerun_table> kept = around ? around_ : std::nullopt;
    const checkmate_model program = build(problem_, at_most(), part, [&](op_id phase, op_id o) {
      const bool free = (near.contains(phase, o) && known.allows(phase, o)) || (kept && kept->runs_again(phase, o));
      return free ? rerun::free : rerun::never;
    });
    figures f;
    f.set("distance", distance);
    f.set("around_schedule", around);
    if (!program.is_complete()) {
      f.set("ending", ending_of_building(program));
      programs.push_back(std::move(f));
      return false;
    }
    const mip_result r = solve_for_schedule(program, part, share_of_one, options_.window_nodes, "near", "near");
    f.set("decisions", program.decisions());
    f.set("columns", program.model().num_columns());
    f.set("rows", program.model().num_rows());
    f.set("nodes", r.nodes);
    f.set("seconds", r.seconds);
    f.set("ending", to_string(r.status));
    programs.push_back(std::move(f));
    return true;
  }

  /// Windows of half of the phases and of a quarter of the operations, then larger ones, from the end to the beginning,
  /// until none helps.
  void solve_windows() {
    run_clock part = begin_step(share_of_windows);
    const std::uint32_t n = problem_.graph().num_operations;
    for (double scale = 1; scale <= 3 && around_; scale *= 1.5)
      for (bool better = true; better;) {
        better = false;
        for (const bool of_phases : {true, false}) {
          const auto width = static_cast<std::uint32_t>(scale * n / (of_phases ? 2 : 4)) + 2;
          for (std::uint32_t end = n + width / 2; end > 0; end -= std::min(end, width / 2)) {
            if (!around_ || part.should_stop() || is_settled()) return;
            better = solve_window({of_phases, end - std::min(end, width), std::min(end, n)}, part) || better;
          }
        }
      }
  }

  /// Returns true if the window gives a better schedule. Precondition: there are runs to decide a window of.
  bool solve_window(const window& w, run_clock& part) {
    const rerun_limits& known = limits(part);
    const rerun_table kept = *around_;
    const checkmate_model program = build(problem_, at_most(), part, [&](op_id phase, op_id o) {
      if (w.contains(phase, o)) return known.allows(phase, o) ? rerun::free : rerun::never;
      return kept.runs_again(phase, o) ? rerun::always : rerun::never;
    });
    if (!program.is_complete()) {
      note("windows_not_built", ++windows_not_built_);
      return false;
    }
    if (program.decisions() == 0) return false;
    const double before = best_.time;
    const mip_result r = solve_for_schedule(program, part, share_of_one, options_.window_nodes, "window", "window");
    window_improvements_ += best_.time < before;
    note("window_programs", ++windows_);
    note("window_improvements", window_improvements_);
    note("window_nodes", window_nodes_ += r.nodes);
    note("window_seconds", window_seconds_ += r.seconds);
    return best_.time < before;
  }

  // ---- The whole program

  void solve_program() {
    run_clock part = begin_step(1);
    const rerun_limits& known = limits(part);
    const checkmate_model program = build(problem_, at_most(), part, [&](op_id phase, op_id o) {
      return known.allows(phase, o) ? rerun::free : rerun::never;
    });
    if (!program.is_complete()) {
      note("program_ending", ending_of_building(program));
      best_.message = "integer program: not built: " + std::string(ending_of_building(program));
      return;
    }
    const std::uint64_t max_nodes = clock_.control().is_limited() ? mip_options::no_node_limit : options_.default_nodes;
    const mip_result r = solve_for_schedule(program, part, 1, max_nodes, "program", "integer program");
    note("program_phases", program.phases());
    note("program_decisions", program.decisions());
    note("program_columns", program.model().num_columns());
    note("program_rows", program.model().num_rows());
    note("program_nodes", r.nodes);
    if (std::isfinite(r.bound)) {
      note("program_bound", program.time(r.bound));
      note("program_gap", best_.time / program.time(r.bound) - 1);
    }
    note("program_seconds", r.seconds);
    note("program_ending", to_string(r.status));
    best_.message = "integer program (" + std::string(backend_.name()) +
                    "): " + detail::count_of(program.decisions(), "decision") + ", " +
                    detail::count_of(program.model().num_columns(), "column") + ", " +
                    detail::count_of(program.model().num_rows(), "row") + ", " + detail::count_of(r.nodes, "node") +
                    ", " + outcome(r.status, best_.has_schedule());
    if (!r.message.empty() && r.status != mip_status::failed) best_.message += "; " + r.message;
  }

  [[nodiscard]] static std::string outcome(mip_status s, bool has_schedule) {
    switch (s) {
      case mip_status::optimal:
        return "optimal for the listed order of first runs";
      case mip_status::infeasible:
        return has_schedule ? "nothing faster in the listed order of first runs"
                            : "infeasible in the listed order of first runs";
      case mip_status::feasible:
      case mip_status::no_solution:
        return "stopped";
      default:
        return std::string(to_string(s));
    }
  }

  /// The moments of the highest turnaround bounds. A budget gives one moment; the moments of neighbouring budgets are
  /// good for this budget, too, and mostly other ones.
  [[nodiscard]] std::vector<op_id> best_moments() const {
    std::vector<op_id> moments;
    if (!problem_.has_budget()) return moments;
    turnaround_options bounding;
    bounding.want_saved = false;
    turnaround_analysis analysis(problem_);
    for (std::uint32_t i = 0; i < 2 * options_.moments && moments.size() < options_.moments; ++i) {
      if (clock_.should_stop()) break;
      const double factor = 1 + 0.04 * ((i + 1) / 2) * (i % 2 == 0 ? -1 : 1);
      const auto budget = static_cast<std::int64_t>(factor * static_cast<double>(problem_.budget()));
      bounding.run = clock_.limits();
      const turnaround_result r = analysis.bound(budget, bounding);
      detail::count_flows(r.flows, problem_.graph().num_operations, clock_);
      if (!r.infeasible && r.recomputation > 0 && std::find(moments.begin(), moments.end(), r.moment) == moments.end())
        moments.push_back(r.moment);
    }
    return moments;
  }

  mip_failures failures_{};
  mip_backend_ref backend_;
  const problem& problem_;
  const checkmate_options& options_;
  run_clock& clock_;
  solution& best_;
  std::optional<rerun_table>
      around_{};  // the runs again of the best schedule, if its first runs are in the listed order
  std::vector<op_id> moments_{};
  std::optional<rerun_limits> limits_{};
  double limits_time_ = 0;                 // the time for which `limits_` hold
  std::uint64_t tries_ = 0, fitting_ = 0;  // the rounding's tries, and those that fit
  double rounded_ = std::numeric_limits<double>::infinity();
  std::uint64_t windows_ = 0, windows_not_built_ = 0, window_improvements_ = 0, window_nodes_ = 0;
  double window_seconds_ = 0;
  std::uint64_t wrong_ = 0;  // solutions of the backend that are no schedules
};

REMAT_INLINE solution solve(mip_backend_ref backend, const problem& p, const checkmate_options& options) {
  require_valid_options(name, options);
  require_legal_starts(p, options.starts, name);
  return solve_by_own_method(p, name, options.run, options.improve, {.opens_with_listed_order = false},
                             [&](run_clock& clock, solution& best) {
                               return method_end{search(backend, p, options, clock, best).run(), options.starts};
                             });
}

}  // namespace REMAT_NAMESPACE::detail::checkmate_search
