// SPDX-License-Identifier: BSL-1.0
// For hiremate: a rule of your own that chooses the solvers of sub-graphs, and a solver of sub-graphs of your own.
#include <exception>
#include <iostream>
#include <span>
#include <vector>

#include "remat/io/json.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/mip/branch_and_bound.hpp"

/// Integer programs for sub-graphs of few children, Rotor's dynamic program for those of many.
std::vector<remat::sub_method> few_by_program(const remat::sub_graph_facts& sub_graph) {
  if (sub_graph.children > 0 && sub_graph.children <= 8) return {remat::sub_method::h_ilp};
  return {remat::sub_method::rotor};
}

/// The exact search, for as many states as the work limit allows.
remat::solution exactly(const remat::problem& p, std::span<const remat::schedule>, const remat::run_control& run) {
  return remat::exact(p, {.run = run});
}

// Run it with tests/data/graphs/rk/fno1d.json.
int main(int argc, char** arguments) try {
  if (argc != 2) {
    std::cerr << "usage: own-sub-solver GRAPH.json\n";
    return 2;
  }
  const remat::problem p = remat::read_training_step(arguments[1]).instance;
  const remat::problem tight = p.with_budget(p.graph().baseline_peak * 7 / 10);
  remat::hiremate_options options;
  options.run.work_limit = 1'600'000;
  options.rule = few_by_program;
  const remat::solution by_rule = remat::hiremate_with(remat::branch_and_bound)(tight, options);
  std::cout << "by your rule: " << to_string(by_rule.status) << ", found by " << by_rule.by << '\n';
  options.own_sub_solver = exactly;
  const remat::solution by_own = remat::hiremate_with(remat::branch_and_bound)(tight, options);
  std::cout << "by your solver: " << to_string(by_own.status) << ", found by " << by_own.by << '\n';
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
