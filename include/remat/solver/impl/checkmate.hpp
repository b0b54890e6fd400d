// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/solver/checkmate.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/bound/turnaround.hpp"
#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/core/linkage.hpp"
#include "remat/mip/backend_ref.hpp"
#include "remat/mip/checkmate_model.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/evict.hpp"
#include "remat/solver/refined.hpp"
#include "remat/solver/rockmate.hpp"
#include "remat/solver/solution.hpp"

namespace remat::detail::checkmate_search {

inline constexpr std::string_view name = "checkmate";
inline constexpr double share_of_rockmate = 0.2, share_of_refined = 0.8;

class search {
 public:
  search(mip_backend_ref backend, const problem& p, const checkmate_options& options)
      : backend_(backend), problem_(p), options_(options), clock_(options.run) {}

  solution run() {
    if (clock_.should_stop()) return finish();
    std::vector<schedule> starts = options_.starts;
    names_.assign(starts.size(), "start");
    // `refined` settles smaller problems at once.
    if (problem_.graph().num_operations > refined_solver::small_step && problem_.has_budget()) add_starts(starts);
    refine(std::move(starts));
    const bool is_settled = best_.status == solve_status::optimal || best_.status == solve_status::infeasible;
    if (!is_settled && !is_good_enough() && !clock_.should_stop()) solve_program();
    return finish();
  }

 private:
  [[nodiscard]] bool is_good_enough() const {
    return best_.plan && best_.time <= best_.lower_bound * (1 + options_.good_enough);
  }

  solution finish() {
    conclude(problem_, best_, clock_, clock_.poll());
    return std::move(best_);
  }

  /// The run of a part, whose progress is reported as this solver's.
  [[nodiscard]] run_control part(double share, std::string_view stage) {
    run_control run = clock_.part(share);
    if (options_.run.on_progress)
      run.on_progress = [this, stage](progress news) {
        news.solver = name;
        news.stage = stage;
        clock_.report(news);
      };
    return run;
  }

  /// Schedules of `evict`, so that there is one if the search is stopped soon, and of `rockmate`.
  void add_starts(std::vector<schedule>& starts) {
    evict_options evicting;
    evicting.run = part(1, "eviction");
    solution quick = evict(problem_, evicting);
    if (quick.plan) add_start(starts, std::move(quick));
    rockmate_options blocks;
    blocks.run = part(share_of_rockmate, "chains of blocks");
    solution chain = rockmate(problem_, blocks);
    const std::uint64_t work = std::min(chain.statistics.work, blocks.run.work_limit);
    if (chain.plan) add_start(starts, std::move(chain));
    clock_.work(work);
  }
  void add_start(std::vector<schedule>& starts, solution found) {
    starts.push_back(std::move(*found.plan));
    names_.push_back(std::move(found.by));
  }

  void refine(std::vector<schedule> starts) {
    refined_options refining;
    refining.starts = std::move(starts);
    refining.run = part(share_of_refined, "refinement");
    best_ = refined(problem_, refining);
    if (best_.plan) best_.by = by_part(name, best_.by);
    for (std::size_t i = 0; i < refining.starts.size(); ++i) {
      const schedule& s = refining.starts[i];
      if (best_.plan && *best_.plan == s) best_.by = by_part(name, names_[i]);
      // Stopped before it looked at the starts:
      if (!best_.plan && best_.status != solve_status::infeasible && check(problem_, s).valid())
        accept(problem_, best_, s, by_part(name, names_[i]));
    }
    clock_.work(std::min(best_.statistics.work, refining.run.work_limit));
  }

  void solve_program() {
    const problem p = problem_.with_known_bound(best_.lower_bound);
    if (const double estimate = checkmate_model::size_estimate(p); estimate > options_.most_columns) {
      best_.message = "the integer program would have some " + std::to_string(static_cast<std::uint64_t>(estimate)) +
                      " columns, more than most_columns; the schedule is that of refined";
      return;
    }
    checkmate_model_options building;
    building.units = options_.units;
    if (best_.plan) building.at_most = best_.time;
    building.moments = best_moments(p);
    building.run = clock_.part(1);
    building.run.work_limit = run_control::no_work_limit;
    const checkmate_model program(p, building);
    if (!program.is_complete()) return;
    const mip_result r = solve(p, program);
    clock_.work(r.nodes * checkmate_moves_per_node);
    best_.message = "integer program (" + std::string(backend_.name()) + "): " + std::to_string(program.decisions()) +
                    " decisions, " + std::to_string(program.model().num_columns()) + " columns, " +
                    std::to_string(program.model().num_rows()) + " rows, " + std::to_string(r.nodes) + " nodes, " +
                    outcome(r.status) + (r.message.empty() ? "" : "; " + r.message) +
                    (wrong_ == 0 ? "" : "; " + std::to_string(wrong_) + " solutions were no schedules");
  }

  mip_result solve(const problem& p, const checkmate_model& program) {
    mip_options solving;
    if (best_.plan)
      if (auto values = program.encode(*best_.plan)) solving.start = std::move(*values);
    solving.run = part(1, "integer program");
    if (solving.run.work_limit != run_control::no_work_limit)
      solving.run.work_limit = std::max<std::uint64_t>(1, solving.run.work_limit / checkmate_moves_per_node);
    else if (solving.run.time_limit == std::chrono::nanoseconds::max())
      solving.most_nodes = options_.default_nodes;
    std::stop_source good;  // the schedule is good enough
    const std::stop_callback pass_on(options_.run.stop, [&good] { good.request_stop(); });
    solving.run.stop = good.get_token();
    if (options_.run.on_progress)
      solving.run.on_progress = [this](const progress& of_backend) {
        clock_.report({.solver = name,
                       .stage = "integer program",
                       .best_objective = best_.time,
                       .lower_bound = best_.lower_bound,
                       .done = of_backend.done});
      };
    solving.on_incumbent = [&](std::span<const double> values, double) {
      schedule plan = program.decode(values);
      if (check(p, plan).what == violation::none)
        accept(p, best_, std::move(plan), by_part(name, "program"));
      else
        ++wrong_;
      if (is_good_enough()) good.request_stop();
    };
    return backend_.solve(program.model(), solving);
  }

  /// The moments of the highest turnaround bounds. A budget gives one moment; the moments of neighbouring budgets are
  /// good for this budget, too, and mostly other ones.
  [[nodiscard]] std::vector<op_id> best_moments(const problem& p) const {
    std::vector<op_id> moments;
    turnaround_options bounding;
    bounding.want_saved = false;
    turnaround_analysis analysis(p);
    for (std::uint32_t i = 0; i < 2 * options_.moments && moments.size() < options_.moments; ++i) {
      if (clock_.should_stop()) break;
      const double factor = 1 + 0.04 * ((i + 1) / 2) * (i % 2 == 0 ? -1 : 1);
      const auto budget = static_cast<std::int64_t>(factor * static_cast<double>(p.budget()));
      bounding.run = clock_.part(1);
      const turnaround_result r = analysis.bound(budget, bounding);
      if (!r.infeasible && r.recomputation > 0 && std::find(moments.begin(), moments.end(), r.moment) == moments.end())
        moments.push_back(r.moment);
    }
    return moments;
  }

  [[nodiscard]] static std::string outcome(mip_status s) {
    switch (s) {
      case mip_status::optimal:
        return "optimal for the listed order of first runs";
      case mip_status::infeasible:
        return "nothing faster in the listed order of first runs";
      case mip_status::feasible:
      case mip_status::no_solution:
        return "stopped";
      default:
        return std::string(to_string(s));
    }
  }

  mip_backend_ref backend_;
  const problem& problem_;
  const checkmate_options& options_;
  run_clock clock_;
  solution best_;
  std::vector<std::string> names_;  // of the parts that found the starts
  std::uint64_t wrong_ = 0;         // solutions of the backend that are no schedules
};

REMAT_INLINE solution solve(mip_backend_ref backend, const problem& p, const checkmate_options& options) {
  const auto refuse = [](const std::string& text) { throw bad_argument("checkmate: " + text); };
  if (!(options.good_enough >= 0))
    refuse("good_enough is " + std::to_string(options.good_enough) + "; it must be 0 or more");
  if (!(options.most_columns >= 0))
    refuse("most_columns is " + std::to_string(options.most_columns) + "; it must be 0 or more");
  if (options.units < 1) refuse("units is " + std::to_string(options.units) + "; there must be at least one");
  return search(backend, p, options).run();
}

}  // namespace remat::detail::checkmate_search
