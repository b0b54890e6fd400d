// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The one list of all solvers, for the laws that each of them keeps (docs/laws.md) and for throughput_bench.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/cbc.hpp"
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
#include "remat/mip/branch_and_bound.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/concepts.hpp"
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
                                       typename Solver::options_type options = {}) {
  return {std::move(name), std::string(Solver::name),
          [&solver, options = std::move(options)](const problem& p, const run_control& run) {
            typename Solver::options_type now = options;
            now.run = run;
            return solver(p, now);
          }};
}

inline constexpr auto checkmate_own = checkmate_with(branch_and_bound);
inline constexpr auto hiremate_own = hiremate_with(branch_and_bound);

/// Every solver of graphs. A new solver gets one line here, and so all the laws.
[[nodiscard]] inline std::vector<law_solver> all_solvers() {
  return {
      law_solver_of("no_remat", no_remat),
      law_solver_of("no_remat (reorder)", no_remat, {.reorder = true}),
      law_solver_of("chen_sqrt", chen_sqrt),
      law_solver_of("chen_greedy", chen_greedy),
      law_solver_of("revolve", revolve),
      law_solver_of("evict", evict),
      law_solver_of("evict (copies)", evict_with_copies),
      law_solver_of("evict (random)", evict, {.random_passes = 1'000'000}),
      law_solver_of("exact", exact),
      law_solver_of("refined", refined),
      law_solver_of("offload", offload),
      law_solver_of("rotor", rotor),
      law_solver_of("pofo", pofo),
      law_solver_of("rotor (improve)", rotor, {.improve = by_refinement}),
      law_solver_of("rockmate", rockmate),
      law_solver_of("rockmate (improve)", rockmate, {.improve = by_refinement}),
      law_solver_of("twremat", twremat),
      law_solver_of("checkmate (own)", checkmate_own),
      law_solver_of("checkmate (CBC)", checkmate),
      law_solver_of("hiremate (own)", hiremate_own),
      law_solver_of("hiremate (CBC)", hiremate),
      law_solver_of("auto", automatic),
  };
}

}  // namespace remat::test
