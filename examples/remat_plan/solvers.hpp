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
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "outcome.hpp"
#include "remat/chain/chain.hpp"
#include "remat/core/run.hpp"
#include "remat/method/registry.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"
#include "search.hpp"
#include "solver_options.hpp"

#ifdef REMAT_HAVE_CBC
#include "remat/mip/cbc.hpp"
#else
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

/// `solver` on the graph of `p`; each solve names its budget.
template <class Solver>
[[nodiscard]] named_solver on_graph(const Solver& solver, const remat::problem& p,
                                    typename Solver::options_type options = {}) {
  const auto solve = [solver, options](const remat::problem& within, const remat::run_control& run) {
    typename Solver::options_type now = options;
    now.run = run;
    // Under a limit of work an answer must not depend on the solves before it.
    if constexpr (requires { now.cache; })
      if (run.has_work_limit()) now.cache = remat::make_way_cache();
    return solver(within, now);
  };
  const auto of_budget = [p, solve](std::int64_t budget, const remat::run_control& run) {
    return to_outcome(solve(p.with_budget(budget), run));
  };
  return {std::string(Solver::name), of_budget, solve};
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

#ifdef REMAT_HAVE_CBC
inline constexpr remat::cbc_backend backend{};
inline constexpr bool has_real_backend = true;
#else
inline constexpr remat::branch_and_bound_backend backend{};
inline constexpr bool has_real_backend = false;
#endif

/// Calls `action(row)` for each solver of training graphs that the program has.
template <class Action>
void for_each_solver(Action&& action) {
  remat::for_each_solver(backend, [&](const auto& row) {
    if (has_real_backend || !row.traits.needs_real_backend) action(row);
  });
}

/// The options with which the program runs its solvers of training graphs, unless `--option` says otherwise: those of
/// a preset.
class graph_solver_options {
 public:
  explicit graph_solver_options(remat::preset values = remat::preset::balanced) {
    const auto cache = remat::make_way_cache();  // for all budgets
    each([&](std::string_view, auto& options) {
      options = remat::preset_options<std::remove_reference_t<decltype(options)>>(values);
      if constexpr (requires { options.cache; }) options.cache = cache;
    });
    // The library's own branch and bound is for small programs.
    if (!has_real_backend) of<remat::hiremate_options>().max_columns = 300;
  }

  /// The options of one solver.
  template <class Options>
  [[nodiscard]] Options& of() {
    return std::get<Options>(all_);
  }
  /// \overload
  template <class Options>
  [[nodiscard]] const Options& of() const {
    return std::get<Options>(all_);
  }

  /// Calls `action(solver, options)` for the options of each solver.
  template <class Action>
  void each(Action&& action) {
    for_each_solver([&]<class Row>(const Row& row) { action(row.name, of<typename Row::options_type>()); });
  }

 private:
  template <class... Rows>
  static std::tuple<typename Rows::options_type...> options_of(const std::tuple<Rows...>&);

  decltype(options_of(remat::registered_solvers(backend))) all_;
};

/// `no_remat` in the listed order if it fits, else in the order of least peak.
struct best_order {
  using options_type = remat::no_remat_options;
  static constexpr std::string_view name = remat::no_remat_solver::name;
  [[nodiscard]] remat::solution operator()(const remat::problem& p, remat::no_remat_options options) const {
    remat::solution s = remat::no_remat(p, options);
    if (s.plan || s.status == remat::solve_status::infeasible || options.reorder) return s;
    options.reorder = true;
    return remat::no_remat(p, options);
  }
};
/// The solver that the program runs under the name of `solver`.
template <class Solver>
[[nodiscard]] const Solver& program_solver(const Solver& solver) {
  return solver;
}
[[nodiscard]] inline best_order program_solver(const remat::no_remat_solver&) { return {}; }

/// All solvers for a training graph. If the problem has a link to the host, they are those that know copies.
[[nodiscard]] inline std::vector<named_solver> graph_solvers(
    const remat::problem& p, const graph_solver_options& options = graph_solver_options()) {
  std::vector<named_solver> all;
  const bool has_link = p.link().has_value();
  for_each_solver([&]<class Row>(const Row& row) {
    if (!row.traits.is_for(has_link)) return;
    const auto& own = options.of<typename Row::options_type>();
    all.push_back(has_link ? on_graph(program_solver(row.with_copies), p, own)
                           : on_graph(program_solver(row.solver), p, own));
    all.back().is_in_all = has_link || !row.traits.is_for_experts;
  });
  return all;
}

/// `auto` with options of `rotor`.
struct automatic_on_chains {
  using options_type = remat::automatic_options;
  static constexpr std::string_view name = remat::automatic_solver::name;
  remat::rotor_options rotor{};
  [[nodiscard]] remat::chain_solution operator()(const remat::chain_problem& p, const options_type& options) const {
    return remat::automatic(p, options, rotor);
  }
};

/// All solvers for a chain.
[[nodiscard]] inline std::vector<named_solver> chain_solvers(const remat::chain_problem& p,
                                                             const remat::rotor_options& options = {}) {
  std::vector<named_solver> all{on_chain(remat::no_remat, p), on_chain(remat::chen_sqrt, p),
                                on_chain(remat::revolve, p), on_chain(remat::rotor, p, options)};
  all.push_back(on_chain(automatic_on_chains{options}, p));
  return all;
}

}  // namespace remat_plan
