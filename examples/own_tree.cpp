// SPDX-License-Identifier: BSL-1.0
// A tree decomposition of your own for twremat: a path of bags along the listed order.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <iostream>
#include <vector>

#include "remat/io/json.hpp"
#include "remat/method/twremat.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

/// Bag v holds v and all earlier vertices that have a neighbour from v on. Each edge lies in the bag of its later end,
/// and the bags of a vertex follow one another.
remat::tree_decomposition path_of(const remat::undirected_graph& g) {
  const auto n = static_cast<std::uint32_t>(g.num_vertices());
  remat::tree_decomposition out;
  for (std::uint32_t v = 0; v < n; ++v) {
    std::vector<std::uint32_t> bag;
    for (std::uint32_t u = 0; u <= v; ++u)
      if (u == v || std::ranges::any_of(g.neighbours(u), [v](std::uint32_t w) { return w >= v; })) bag.push_back(u);
    out.add_bag(bag);
    if (v > 0) out.edges.emplace_back(v - 1, v);
  }
  return out;
}

// Run it with tests/data/graphs/unet5-b16-256.json.
int main(int argc, char** arguments) try {
  if (argc != 2) {
    std::cerr << "usage: own-tree GRAPH.json\n";
    return 2;
  }
  const remat::problem p = remat::read_training_step(arguments[1]).instance;
  remat::twremat_options options;
  options.tree = path_of(remat::operation_graph(p));
  const remat::solution s = remat::twremat(p.with_budget(p.graph().baseline_peak * 7 / 10), options);
  std::cout << "width " << options.tree->width() << ": " << to_string(s.status) << ", found by " << s.by << '\n';
} catch (const std::exception& e) {
  std::cerr << e.what() << '\n';
  return 1;
}
