// SPDX-License-Identifier: BSL-1.0
// An own solver of sub-graphs for hiremate: which one is asked depends on the sub-graph.
#include <iostream>
#include <span>

#include "remat/io/training_graph_json.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/solver/evict.hpp"
#include "remat/solver/exact.hpp"
#include "remat/solver/hiremate.hpp"
#include "remat/solver/part_solvers.hpp"

/// The exact search for small sub-graphs, eviction for the others.
remat::sub_solution small_ones_exactly(const remat::problem& p, std::span<const remat::schedule>,
                                       const remat::run_control& run) {
  if (p.graph().num_operations <= 16) {
    remat::exact_options options;
    options.run = run;
    return remat::to_sub_solution(remat::exact(p, options));
  }
  remat::evict_options options;
  options.run = run;
  return remat::to_sub_solution(remat::evict(p, options));
}

// Run it with tests/data/graphs/rk/fno1d.json
int main(int, char** arguments) {
  const remat::problem p = remat::read_training_step(arguments[1]).instance;
  remat::hiremate_options options;
  options.solvers.thorough = small_ones_exactly;
  options.refine = false;
  options.run.work_limit = 20'000;
  const remat::problem tight = p.with_budget(p.graph().baseline_peak * 7 / 10);
  const remat::solution s = remat::hiremate_with(remat::branch_and_bound)(tight, options);
  std::cout << s.message << '\n' << to_string(s.status) << ", found by " << s.by << '\n';
}
