// SPDX-License-Identifier: BSL-1.0
#pragma once

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
#include "remat/chain/chain_problem.hpp"
#include "remat/core/control.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/automatic.hpp"
#include "remat/solver/chain_solution.hpp"
#include "remat/solver/chen.hpp"
#include "remat/solver/concepts.hpp"
#include "remat/solver/evict.hpp"
#include "remat/solver/no_remat.hpp"
#include "remat/solver/revolve.hpp"
#include "remat/solver/rockmate.hpp"
#include "remat/solver/rotor.hpp"
#include "remat/solver/solution.hpp"
#include "remat/solver/twremat.hpp"
#include "search.hpp"

#ifdef REMAT_HAVE_CBC
#include "remat/solver/checkmate_cbc.hpp"
#include "remat/solver/hiremate_cbc.hpp"
#else
#include "remat/mip/branch_and_bound.hpp"
#include "remat/solver/hiremate.hpp"
#endif

namespace remat_plan {

/// The outcome of a solution of a graph or of a chain. Only that of a graph has a schedule that can be written.
template <remat::solver_solution Solution>
[[nodiscard]] outcome to_outcome(Solution s) {
  outcome out;
  out.status = s.status;
  out.seconds = s.statistics.seconds;
  out.message = std::move(s.message);
  if (s.status != remat::solve_status::infeasible && s.status != remat::solve_status::error)
    out.lower_bound = s.lower_bound;
  if (!s.plan) return out;
  out.peak = s.peak_bytes;
  out.time = s.time;
  out.recomputes = s.statistics.recomputes;
  if constexpr (std::is_same_v<Solution, remat::solution>) out.plan = std::move(s.plan);
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

/// All solvers for a training graph.
[[nodiscard]] inline std::vector<named_solver> graph_solvers(const remat::problem& p,
                                                             std::optional<std::uint32_t> slots) {
  // The listed order where it fits, else the order of least peak.
  const auto best_order = [](const remat::problem& within, const remat::run_control& run) {
    remat::no_remat_options options;
    options.run = run;
    remat::solution s = remat::no_remat(within, options);
    if (!s.plan && s.status != remat::solve_status::infeasible) {
      options.reorder = true;
      s = remat::no_remat(within, options);
    }
    return s;
  };
  // Under a limit of work, random passes go on until the work is spent.
  const auto evict_within_work = [](const remat::problem& within, const remat::run_control& run) {
    remat::evict_options options;
    options.run = run;
    if (run.work_limit != remat::run_control::no_work_limit)
      options.random_passes = std::numeric_limits<std::uint64_t>::max();
    return remat::evict(within, options);
  };
  remat::rotor_options in_slots;
  if (slots) in_slots.slots = *slots;
  remat::rockmate_options blocks;
  if (slots) blocks.slots = *slots;
  blocks.cache = std::make_shared<remat::option_cache>();  // for all budgets
  remat::hiremate_options groups;
  groups.cache = blocks.cache;
#ifndef REMAT_HAVE_CBC
  groups.most_columns = 300;  // the library's own branch and bound is for small programs
#endif
  remat::twremat_options several;
  several.attempts = 9;
  return {on_graph_by(remat::no_remat_solver::name, p, best_order),
          on_graph(remat::chen_sqrt, p),
          on_graph(remat::chen_greedy, p),
          on_graph(remat::revolve, p),
          on_graph(remat::rotor, p, in_slots),
          on_graph(remat::rockmate, p, blocks),
          on_graph_by(remat::evict_solver::name, p, evict_within_work),
          on_graph(remat::twremat, p, several),
#ifdef REMAT_HAVE_CBC
          on_graph(remat::hiremate, p, groups),
          on_graph(remat::checkmate, p),
#else
          on_graph(remat::hiremate_with(remat::branch_and_bound), p, groups),
#endif
          on_graph(remat::automatic, p)};
}

/// All solvers for a chain.
[[nodiscard]] inline std::vector<named_solver> chain_solvers(const remat::chain_problem& p,
                                                             std::optional<std::uint32_t> slots) {
  remat::rotor_options in_slots;
  if (slots) {
    in_slots.form = remat::rotor_form::slots;
    in_slots.slots = *slots;
  }
  std::vector<named_solver> all{on_chain(remat::no_remat, p), on_chain(remat::chen_sqrt, p),
                                on_chain(remat::revolve, p), on_chain(remat::rotor, p, in_slots)};
  named_solver best = all.back();  // rotor finds the best of all schedules that the others can find
  best.name = "auto";
  all.push_back(std::move(best));
  return all;
}

}  // namespace remat_plan
