// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <span>
#include <utility>

#include "remat/core/run.hpp"
#include "remat/hierarchy/detail/sub_solver.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/twremat.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

/// A solver's answer as that of a sub-solver.
[[nodiscard]] inline sub_solution to_sub_solution(solution s) {
  sub_solution out;
  out.plan = std::move(s.plan);
  out.time = s.time;
  out.lower_bound = s.lower_bound;
  out.work = s.statistics.work;
  return out;
}

/// The default solvers of parts: `refined`, and `twremat` for tight budgets.
///
///     option_search search;
///     search.solvers = default_part_solvers();
[[nodiscard]] inline part_solvers default_part_solvers() {
  part_solvers out;
  out.thorough = [](const problem& p, std::span<const schedule> starts, const run_control& run) {
    refined_options options;
    options.starts.assign(starts.begin(), starts.end());
    options.run = run;
    return to_sub_solution(refined(p, options));
  };
  out.tight = [](const problem& p, std::span<const schedule>, const run_control& run) {
    twremat_options options;
    options.attempts = 1;
    options.retain_rounds = 2;
    options.run = run;
    return to_sub_solution(twremat(p, options));
  };
  return out;
}

/// The default solvers of levels: `evict`; to escalate, `evict` with its last resorts, and then `twremat`.
[[nodiscard]] inline level_solvers default_level_solvers() {
  level_solvers out;
  out.quick = [](const problem& p, std::span<const schedule>, const run_control& run) {
    evict_options options;
    options.insist = false;
    options.run = run;
    return to_sub_solution(evict(p, options));
  };
  out.escalate = [](const problem& p, std::span<const schedule>, const run_control& run) {
    run_clock clock(run);
    evict_options options;
    options.run = run;
    sub_solution first = to_sub_solution(evict(p, options));
    clock.work(first.work);
    if (first.plan || first.infeasible() || clock.should_stop()) return first;
    twremat_options other;
    other.attempts = 2;
    other.run = clock.part(1);
    sub_solution second = to_sub_solution(twremat(p, other));
    second.work += first.work;
    return second;
  };
  return out;
}

}  // namespace remat
