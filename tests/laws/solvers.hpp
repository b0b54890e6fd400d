// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// All solvers as functions, for the laws that each of them keeps (docs/laws.md) and for throughput_bench.

#include <cstddef>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/method/cbc.hpp"
#include "remat/method/registry.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace remat::test {

/// A solver of graphs, with its options but for `run`.
struct law_solver {
  std::string name;
  std::string reports;  ///< the name in its progress reports
  std::function<solution(const problem&, const run_control&)> solve;
};

template <class Solver>
requires solver_for<Solver, problem>
[[nodiscard]] law_solver law_solver_of(std::string name, const Solver& solver,
                                       const typename Solver::options_type& options = {}) {
  return {std::move(name), std::string(Solver::name), detail::solve_with(solver, options)};
}

inline constexpr auto checkmate_own = checkmate_with(branch_and_bound);
inline constexpr auto hiremate_own = hiremate_with(branch_and_bound);

/// Every solver of graphs, of `registered_solvers`: a new one gets all the laws by its row there. Those that take a
/// backend come with the library's own and with CBC.
[[nodiscard]] inline std::vector<law_solver> all_solvers() {
  std::vector<law_solver> all;
  const auto add = [&](const auto& row, const std::string& kind) {
    const std::string name(row.name);
    all.push_back(law_solver_of(name + kind, row.solver));
    if constexpr (!std::is_same_v<decltype(row.solver), decltype(row.with_copies)>)
      all.push_back(law_solver_of(name + " (copies)", row.with_copies));
  };
  constexpr auto own = registered_solvers(branch_and_bound);
  constexpr auto cbc = registered_solvers(cbc_backend{});
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    const auto add_both = [&](const auto& by_own, const auto& by_cbc) {
      // `auto` tries both backends in its own tests.
      constexpr bool takes_backend = !std::is_same_v<decltype(by_own), decltype(by_cbc)>;
      if (!takes_backend || by_own.name == automatic_solver::name) return add(by_own, "");
      add(by_own, " (own)");
      add(by_cbc, " (CBC)");
    };
    (add_both(std::get<I>(own), std::get<I>(cbc)), ...);
  }
  (std::make_index_sequence<std::tuple_size_v<decltype(own)>>());
  // Other ways to run some of them.
  all.push_back(law_solver_of("no_remat (reorder)", no_remat, {.reorder = true}));
  all.push_back(law_solver_of("evict (random)", evict, {.random_passes = 1'000'000}));
  all.push_back(law_solver_of("rotor (improve)", rotor, {.improve = by_refinement}));
  all.push_back(law_solver_of("rockmate (improve)", rockmate, {.improve = by_refinement}));
  return all;
}

}  // namespace remat::test
