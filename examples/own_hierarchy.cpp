// SPDX-License-Identifier: BSL-1.0
// A hierarchy of your own for hiremate: groups of six forward operations in the listed order, in place of
// H-Partition's.
#include <cstdint>
#include <exception>
#include <iostream>
#include <vector>

#include "remat/hierarchy/hierarchy.hpp"
#include "remat/io/json.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/mip/branch_and_bound.hpp"

// Run it with tests/data/graphs/rk/fno1d.json.
int main(int argc, char** arguments) try {
  if (argc != 2) {
    std::cerr << "usage: own-hierarchy GRAPH.json\n";
    return 2;
  }
  const remat::problem p = remat::read_training_step(arguments[1]).instance;
  const remat::flat_graph& g = p.graph();
  const std::vector<std::uint8_t> forward = remat::forward_operations(g);
  constexpr std::uint32_t none = remat::operation_hierarchy::none, size = 6;

  // The group of each forward operation; none for the others. All groups lie in the whole step.
  std::vector<std::uint32_t> group(g.num_operations, none);
  std::uint32_t count = 0;
  for (std::uint32_t o = 0; o < g.num_operations; ++o)
    if (g.needed[o] && forward[o]) group[o] = count++ / size;
  const std::vector<std::uint32_t> parents((count + size - 1) / size, none);
  const remat::operation_hierarchy h = remat::make_hierarchy(g, forward, group, parents);
  std::cout << h.groups.size() - 1 << " groups, " << (remat::check_hierarchy(g, h).valid() ? "valid" : "wrong") << '\n';

  remat::hiremate_options options;
  options.hierarchy = h;
  options.run.work_limit = 2'000;
  const remat::problem tight = p.with_budget(g.baseline_peak * 7 / 10);
  const remat::solution s = remat::hiremate_with(remat::branch_and_bound)(tight, options);
  std::cout << s.message << '\n' << to_string(s.status) << ", found by " << s.by << '\n';
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
