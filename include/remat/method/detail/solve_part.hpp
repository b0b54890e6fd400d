// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <utility>

#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace remat::detail {

/// Runs a solver as a part of a solve, within `share` of what is left of the limits of `clock`. Its work counts there,
/// and its progress passes through, with its name as the stage.
template <class Solver>
[[nodiscard]] solution solve_part(run_clock& clock, double share, const Solver& solver, const problem& p,
                                  typename Solver::options_type options) {
  run_clock part = clock.part(share, Solver::name);
  options.run = part.control();
  solution s = solver(p, options);
  part.work(s.statistics.work);
  return s;
}

/// Takes what a part has proven into the answer of the whole: its lower bound, and that nothing fits.
inline void take_bound(solution& best, const solution& part) {
  best.lower_bound = std::max(best.lower_bound, part.lower_bound);
  best.proven = best.proven || part.proven;
  if (part.status != solve_status::infeasible) return;
  best.message = part.message;
  best.obstacle = part.obstacle;
}

}  // namespace remat::detail
