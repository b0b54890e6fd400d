// SPDX-License-Identifier: BSL-1.0
#include "remat/treewidth/impl/width_bound.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "support/exhaustive_treewidth.hpp"

namespace {

using namespace remat::test;

}  // namespace

TEST_CASE("never above the treewidth, and often equal") {
  int equal = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    const auto g = random_undirected(seed, static_cast<std::uint32_t>(1 + seed % 12),
                                     static_cast<std::uint32_t>(10 + seed * 7 % 70));
    const std::int64_t width = exhaustive_treewidth(g);
    const std::uint32_t bound = remat::detail::contraction_bound(g, seed);
    CHECK(bound <= width);
    equal += bound == width;
  }
  CHECK(equal > 400);
}

TEST_CASE("cliques, cycles, trees, k-trees: equal; grids: at least 2") {
  CHECK(remat::detail::contraction_bound(remat::undirected_graph()) == 0);
  CHECK(remat::detail::contraction_bound(complete_graph(30)) == 29);
  CHECK(remat::detail::contraction_bound(cycle_graph(50)) == 2);
  CHECK(remat::detail::contraction_bound(k_tree(1, 100, 1)) == 1);
  CHECK(remat::detail::contraction_bound(k_tree(1, 100, 9)) == 9);
  CHECK(remat::detail::contraction_bound(grid_graph(8, 8)) >= 3);
  CHECK(remat::detail::contraction_bound(grid_graph(8, 8)) <= 8);
}

TEST_CASE("a long row gets a few neighbours more; a stop leaves a bound") {
  std::vector<remat::undirected_graph::edge> edges;
  for (std::uint32_t v = 1; v < 400; ++v) {
    edges.emplace_back(0, v);
    if (v > 1) edges.emplace_back(v - 1, v);
  }
  const remat::undirected_graph fan(400, edges);
  CHECK(remat::detail::contraction_bound(fan) == 2);
  const std::function<bool()> stop = [] { return true; };
  CHECK(remat::detail::contraction_bound(fan, 0, &stop) <= 2);
}
