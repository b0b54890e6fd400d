// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/words.hpp"
#include "remat/method/hiremate/impl/level_model.hpp"
#include "remat/mip/model.hpp"

namespace REMAT_NAMESPACE::detail {

struct hierarchical_ilp_options {
  /// Choices to start from. Those that are no schedule, or not within the budget, are not used.
  std::vector<std::vector<level_problem::choice>> starts{};
  /// Hands the best start to the backend, too. Starts count in any case, and CBC searches longer for solutions if it
  /// has none: in ten seconds it found solutions as good or better without a start that was 2 to 4 % above them.
  bool warm_start = false;
  double gap = 0;                ///< end with a time of at most (1 + gap) × the bound of the program
  std::uint32_t again_from = 0;  ///< `level_model_options::again_from`
  /// A model of more columns is not solved: its first linear program alone would take minutes.
  double max_columns = 60'000;
  std::uint64_t nodes = 100;  ///< most nodes of the backend's search, unless the only limit is one on time
  run_control run{};          ///< the control of the whole call; `on_progress` gets the time of the best choices
};

/// The fastest choices found for a level, and what is known of them.
struct level_solution {
  bool found = false;                            ///< there are choices
  std::vector<level_problem::choice> choices{};  ///< a schedule of the level within the budget; empty unless `found`
  double time = std::numeric_limits<double>::infinity();  ///< the choices' time, by `simulate_level`
  std::int64_t peak_bytes = 0;                            ///< the choices' peak, by `simulate_level`
  /// `optimal`: no schedule of the form (`level_model`, sizes in units) is faster by more than `gap`;
  /// `infeasible`: there is no such schedule. Both are the backend's word, a hint.
  mip_status status = mip_status::no_solution;
  double lower_bound = 0;   ///< a bound on the time of schedules of the form; the backend's word, too
  std::uint64_t nodes = 0;  ///< nodes of the backend's search tree
  std::uint64_t work = 0;   ///< the work that the backend counted
  std::size_t columns = 0;  ///< the integer program's columns; 0: none was built
  std::size_t rows = 0;     ///< the integer program's rows
  bool refused = false;     ///< the integer program was not solved, because of `max_columns`
  std::string message{};    ///< how the program ended, or why it was not solved
};

namespace level_search_by_program {

class search {
 public:
  search(mip_backend_ref backend, const level_problem& level, std::int64_t budget,
         const hierarchical_ilp_options& options)
      : backend_(backend), level_(level), budget_(budget), options_(options), clock_(options.run) {}

  level_solution run() {
    for (const auto& start : options_.starts) take(start);
    for (const level_problem::run& r : level_.runs) {
      double least = std::numeric_limits<double>::infinity();
      for (const level_problem::variant& v : r.variants) least = std::min(least, v.time);
      least_time_ += least;
    }
    best_.lower_bound = least_time_;
    if (best_.found) best_.status = mip_status::feasible;
    if (best_.found && is_optimal(best_.time, least_time_)) {
      best_.status = mip_status::optimal;
      best_.message = "no program needed: nothing takes less time";
    } else if (best_.found && is_within_gap(best_.time, least_time_, options_.gap)) {
      best_.message = "no program needed: within the gap of the least time of all runs";
    } else if (clock_.should_stop()) {
      best_.message = "stopped before the integer program";
    } else {
      solve_program();
    }
    return std::move(best_);
  }

 private:
  /// Takes the choices if they are better than the best ones. Returns whether they are a schedule within the budget.
  bool take(std::span<const level_problem::choice> choices) {
    if (!simulate_level(level_, choices).legal) return false;
    std::vector<level_problem::choice> useful = without_runs_in_vain(level_, choices);
    const level_report report = simulate_level(level_, useful);
    if (!report.legal || report.peak_bytes > budget_) return false;
    if (best_.found &&
        (best_.time < report.time || (best_.time == report.time && best_.peak_bytes <= report.peak_bytes)))
      return true;
    best_.found = true;
    best_.choices = std::move(useful);
    best_.time = report.time;
    best_.peak_bytes = report.peak_bytes;
    return true;
  }

  void refuse(double columns) {
    best_.refused = true;
    best_.message = "the integer program would have some " +
                    detail::count_of(static_cast<std::uint64_t>(columns), "column") + ", more than max_columns";
  }

  [[nodiscard]] level_model build() const {
    level_model_options building;
    building.at_most = best_.time;
    building.again_from = options_.again_from;
    building.max_columns = options_.max_columns;
    building.run = clock_.limits();
    return level_model(level_, budget_, building);
  }

  void solve_program() {
    // The estimate does not know the budget, so it is often far above the true number.
    if (const double estimate = level_model::size_estimate(level_); estimate > 20 * options_.max_columns)
      return refuse(estimate);
    const level_model program = build();
    if (const auto columns = static_cast<double>(program.model().num_columns()); columns > options_.max_columns)
      return refuse(columns);
    if (!program.is_complete()) {
      best_.message = "stopped while the integer program was built";
      return;
    }
    best_.columns = program.model().num_columns();
    best_.rows = program.model().num_rows();
    const mip_result r = solve(program);
    conclude(program, r);
  }

  mip_result solve(const level_model& program) {
    mip_options solving;
    solving.relative_gap = options_.gap;
    if (best_.found && options_.warm_start)
      if (auto values = program.encode(best_.choices)) solving.start = std::move(*values);
    solving.run = clock_.limits();
    if (solving.run.has_work_limit() || !solving.run.has_time_limit()) solving.max_nodes = options_.nodes;
    solving.run.on_progress = [this](const progress& of_backend) {
      clock_.report({.solver = "hierarchical_ilp",
                     .stage = "integer program",
                     .best_objective = best_.time,
                     .lower_bound = least_time_,
                     .done = of_backend.done});
    };
    solving.on_incumbent = [&](std::span<const double> values, double) {
      if (!take(program.decode(values))) ++wrong_;
    };
    return backend_.solve(program.model(), solving);
  }

  void conclude(const level_model& program, const mip_result& r) {
    best_.nodes = r.nodes;
    best_.work = r.work;
    best_.status = r.status;
    std::string outcome(to_string(r.status));
    if (r.status == mip_status::infeasible && best_.found) {
      best_.status = mip_status::optimal;  // the start is no slower than any schedule of the form
      outcome = "nothing faster in the form";
    } else if (best_.found && r.status != mip_status::optimal) {
      best_.status = mip_status::feasible;
    } else if (!best_.found && (r.status == mip_status::optimal || r.status == mip_status::feasible)) {
      best_.status = mip_status::failed;
    }
    if (r.status == mip_status::infeasible)
      best_.lower_bound = best_.time;
    else if (r.bound > -mip_model::infinite)
      best_.lower_bound = std::max(least_time_, std::min(best_.time, program.time(r.bound)));
    best_.message = std::string(backend_.name()) + ": " + detail::count_of(program.decisions(), "decision") + ", " +
                    detail::count_of(program.model().num_columns(), "column") + ", " +
                    detail::count_of(program.model().num_rows(), "row") + ", " + detail::count_of(r.nodes, "node") +
                    ", " + outcome + (r.message.empty() ? "" : "; " + r.message) +
                    (wrong_ == 0 ? ""
                                 : "; " + detail::count_of(wrong_, "solution") +
                                       (wrong_ == 1 ? " was no schedule" : " were no schedules"));
  }

  mip_backend_ref backend_;
  const level_problem& level_;
  std::int64_t budget_;
  const hierarchical_ilp_options& options_;
  run_clock clock_;
  level_solution best_;
  double least_time_ = 0;    // the time of all runs, each in its fastest variant
  std::uint64_t wrong_ = 0;  // solutions of the backend that are no schedules
};

}  // namespace level_search_by_program

/// Solves H-ILP (`level_model`) with a MIP backend: the fastest choices found for a level within a budget.
///
/// Each solution of the backend is decoded and counts by what `simulate_level` says of it. Work is that of the backend.
/// For a work limit the answer is the same every time. Cancellation: building the model polls at every event, and the
/// backend stops as it promises. Preconditions: those of `level_model`, and `gap` ≥ 0.
[[nodiscard]] inline level_solution hierarchical_ilp(mip_backend_ref backend, const level_problem& level,
                                                     std::int64_t budget,
                                                     const hierarchical_ilp_options& options = {}) {
  return detail::level_search_by_program::search(backend, level, budget, options).run();
}

}  // namespace REMAT_NAMESPACE::detail
