// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "outcome.hpp"
#include "remat/chain/chain.hpp"
#include "remat/core/run.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/chen.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/evict_with_copies.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/offload.hpp"
#include "remat/method/pofo.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/revolve.hpp"
#include "remat/method/rockmate.hpp"
#include "remat/method/rotor.hpp"
#include "remat/method/twremat.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/concepts.hpp"
#include "remat/solver/solution.hpp"
#include "search.hpp"
#include "solver_options.hpp"

#ifdef REMAT_HAVE_CBC
#include "remat/method/cbc.hpp"
#else
#include "remat/method/checkmate.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/mip/branch_and_bound.hpp"
#endif

namespace remat_plan {

/// The outcome of a solution of a graph or of a chain. Only that of a graph has a schedule that can be written.
template <remat::solver_solution Solution>
[[nodiscard]] outcome to_outcome(Solution s) {
  outcome out;
  out.status = s.status;
  out.seconds = s.statistics.seconds;
  out.message = std::move(s.message);
  out.own = std::move(s.statistics.own);
  if (s.status != remat::solve_status::infeasible && s.status != remat::solve_status::error)
    out.lower_bound = s.lower_bound;
  if (!s.plan) return out;
  out.peak = s.peak_bytes;
  out.time = s.time;
  out.recomputes = s.statistics.recomputes;
  if constexpr (std::is_same_v<Solution, remat::solution>) {
    out.by = std::move(s.by);
    out.plan = std::move(s.plan);
    out.host_peak = s.host_peak_bytes;
  }
  return out;
}

/// `solve` on the graph of `p`; each solve names its budget.
[[nodiscard]] inline named_solver on_graph_by(
    std::string_view name, const remat::problem& p,
    std::function<remat::solution(const remat::problem& p, const remat::run_control& run)> solve) {
  const auto within = [p, solve](std::int64_t budget, const remat::run_control& run) {
    return to_outcome(solve(p.with_budget(budget), run));
  };
  return {std::string(name), within, std::move(solve)};
}

/// `solver` on the graph of `p`.
template <class Solver>
[[nodiscard]] named_solver on_graph(const Solver& solver, const remat::problem& p,
                                    typename Solver::options_type options = {}) {
  return on_graph_by(Solver::name, p, [solver, options](const remat::problem& within, const remat::run_control& run) {
    typename Solver::options_type now = options;
    now.run = run;
    // Under a limit of work an answer must not depend on the solves before it.
    if constexpr (requires { now.cache; })
      if (run.has_work_limit()) now.cache = remat::make_way_cache();
    return solver(within, now);
  });
}

/// `solver` on the chain of `p`.
template <class Solver>
[[nodiscard]] named_solver on_chain(const Solver& solver, const remat::chain_problem& p,
                                    typename Solver::options_type options = {}) {
  const auto solve = [solver, p, options](std::int64_t budget, const remat::run_control& run) {
    typename Solver::options_type now = options;
    now.run = run;
    return to_outcome(solver(p.with_budget(budget), now));
  };
  return {std::string(Solver::name), solve, {}, false};  // each budget alone: comparable with other programs
}

/// The options with which the program runs its solvers of training graphs, unless `--option` says otherwise: those of
/// a preset.
struct graph_solver_options {
  remat::no_remat_options no_remat{};
  remat::chen_sqrt_options chen_sqrt{};
  remat::chen_greedy_options chen_greedy{};
  remat::revolve_options revolve{};
  remat::rotor_options rotor{};
  remat::rockmate_options rockmate{};
  remat::evict_options evict{};
  remat::twremat_options twremat{};
  remat::hiremate_options hiremate{};
  remat::checkmate_options checkmate{};
  remat::refined_options refined{};
  remat::exact_options exact{};
  remat::offload_options offload{};
  remat::pofo_options pofo{};
  remat::automatic_options automatic{};

  explicit graph_solver_options(remat::preset values = remat::preset::balanced) {
    each([&](std::string_view, auto& options) {
      options = remat::preset_options<std::remove_reference_t<decltype(options)>>(values);
    });
    rockmate.cache = remat::make_way_cache();  // for all budgets
    hiremate.cache = rockmate.cache;
#ifndef REMAT_HAVE_CBC
    hiremate.max_columns = 300;  // the library's own branch and bound is for small programs
#endif
  }

  /// Calls `action(solver, options)` for the options of each solver.
  template <class Action>
  void each(Action&& action) {
    action(remat::no_remat_solver::name, no_remat);
    action(remat::chen_sqrt_solver::name, chen_sqrt);
    action(remat::chen_greedy_solver::name, chen_greedy);
    action(remat::revolve_solver::name, revolve);
    action(remat::rotor_solver::name, rotor);
    action(remat::rockmate_solver::name, rockmate);
    action(remat::evict_solver::name, evict);
    action(remat::twremat_solver::name, twremat);
    action(std::string_view("hiremate"), hiremate);
#ifdef REMAT_HAVE_CBC
    action(std::string_view("checkmate"), checkmate);
#endif
    action(remat::refined_solver::name, refined);
    action(remat::exact_solver::name, exact);
    action(remat::offload_solver::name, offload);
    action(remat::pofo_solver::name, pofo);
    action(remat::automatic_solver::name, automatic);
  }
};

/// All solvers for a training graph. If the problem has a link to the host, they are those that know copies.
[[nodiscard]] inline std::vector<named_solver> graph_solvers(
    const remat::problem& p, const graph_solver_options& options = graph_solver_options()) {
  // The listed order if it fits, else the order of least peak.
  const auto best_order = [given = options.no_remat](const remat::problem& within, const remat::run_control& run) {
    remat::no_remat_options order = given;
    order.run = run;
    remat::solution s = remat::no_remat(within, order);
    if (!s.plan && s.status != remat::solve_status::infeasible && !order.reorder) {
      order.reorder = true;
      s = remat::no_remat(within, order);
    }
    return s;
  };
#ifdef REMAT_HAVE_CBC
  const named_solver automatic = on_graph(remat::automatic_with(remat::cbc_backend{}), p, options.automatic);
#else
  const named_solver automatic = on_graph(remat::automatic, p, options.automatic);
#endif
#ifdef REMAT_HAVE_CBC
  const named_solver hierarchical = on_graph(remat::hiremate, p, options.hiremate);
#else
  const named_solver hierarchical = on_graph(remat::hiremate_with(remat::branch_and_bound), p, options.hiremate);
#endif
  // For whoever names them: one is a part of auto, the other is for small graphs.
  const named_solver refined = on_graph(remat::refined, p, options.refined);
  named_solver exact = on_graph(remat::exact, p, options.exact);
  exact.is_in_all = false;
  named_solver refined_by_name = refined;
  refined_by_name.is_in_all = false;
  if (p.link())
    return {on_graph_by(remat::no_remat_solver::name, p, best_order),
            on_graph(remat::evict_with_copies, p, options.evict),
            refined,
            on_graph(remat::rockmate, p, options.rockmate),
            hierarchical,
            on_graph(remat::offload, p, options.offload),
            on_graph(remat::pofo, p, options.pofo),
            automatic};
  return {on_graph_by(remat::no_remat_solver::name, p, best_order),
          on_graph(remat::chen_sqrt, p, options.chen_sqrt),
          on_graph(remat::chen_greedy, p, options.chen_greedy),
          on_graph(remat::revolve, p, options.revolve),
          on_graph(remat::rotor, p, options.rotor),
          on_graph(remat::rockmate, p, options.rockmate),
          on_graph(remat::evict, p, options.evict),
          on_graph(remat::twremat, p, options.twremat),
          hierarchical,
#ifdef REMAT_HAVE_CBC
          on_graph(remat::checkmate, p, options.checkmate),
#endif
          refined_by_name,
          exact,
          automatic};
}

/// All solvers for a chain.
[[nodiscard]] inline std::vector<named_solver> chain_solvers(const remat::chain_problem& p,
                                                             const remat::rotor_options& options = {}) {
  std::vector<named_solver> all{on_chain(remat::no_remat, p), on_chain(remat::chen_sqrt, p),
                                on_chain(remat::revolve, p), on_chain(remat::rotor, p, options)};
  // The closed form of revolve, then rotor, which finds the best of all schedules that the others can find.
  remat::rotor_options with_start = options;
  with_start.begin_with_revolve = true;
  named_solver best = on_chain(remat::rotor, p, with_start);
  best.name = "auto";
  all.push_back(std::move(best));
  return all;
}

}  // namespace remat_plan
