// SPDX-License-Identifier: BSL-1.0
#include "remat/treewidth/detail/separator_tree.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "remat/treewidth/detail/elimination_order.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

separator_tree separate_by_min_fill(const undirected_graph& g, const std::vector<double>& weight) {
  const tree_decomposition t = decomposition_of(g, greedy_order(g));
  return separate(g.rows(), t.bags, t.links(), weight);
}

/// Every vertex is in one node, preorder numbers hold, and the ends of every edge lie one below the other.
void check_tree(const undirected_graph& g, const separator_tree& tree) {
  std::vector<int> seen(g.num_vertices(), 0);
  for (std::uint32_t k = 0; k < tree.size(); ++k) {
    REQUIRE(!tree.vertices[k].empty());
    REQUIRE(tree.end[k] > k);
    if (tree.parent[k] != separator_tree::none) {
      REQUIRE(tree.parent[k] < k);
      REQUIRE(tree.contains(tree.parent[k], k));
      REQUIRE(tree.end[k] <= tree.end[tree.parent[k]]);
    }
    for (const std::uint32_t v : tree.vertices[k]) {
      ++seen[v];
      REQUIRE(tree.node_of[v] == k);
    }
  }
  for (const int times : seen) REQUIRE(times == 1);
  for (std::uint32_t v = 0; v < g.num_vertices(); ++v)
    for (const std::uint32_t u : g.neighbours(v)) {
      const std::uint32_t a = tree.node_of[v], b = tree.node_of[u];
      REQUIRE((tree.contains(a, b) || tree.contains(b, a)));
    }
}

}  // namespace

TEST_CASE("nested separators of random graphs") {
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    const std::size_t n = 1 + random() % 40;
    std::vector<undirected_graph::edge> edges;
    const std::size_t m = random() % (2 * n);
    for (std::size_t i = 0; i < m; ++i) {
      const auto a = static_cast<std::uint32_t>(random() % n), b = static_cast<std::uint32_t>(random() % n);
      if (a != b) edges.emplace_back(a, b);
    }
    const undirected_graph g(n, edges);
    std::vector<double> weight(n);
    for (double& w : weight) w = static_cast<double>(random() % 5);
    check_tree(g, separate_by_min_fill(g, weight));
  }
}

TEST_CASE("a path is halved by weight, so the depth is logarithmic") {
  const std::size_t n = 1000;
  std::vector<undirected_graph::edge> edges;
  for (std::uint32_t v = 0; v + 1 < n; ++v) edges.emplace_back(v, v + 1);
  const undirected_graph g(n, edges);
  const separator_tree even = separate_by_min_fill(g, std::vector<double>(n, 1.0));
  check_tree(g, even);
  CHECK(even.depth <= 10);
  // All of the weight in the last ten vertices: the first separator lies among them.
  std::vector<double> late(n, 0.0);
  for (std::size_t v = n - 10; v < n; ++v) late[v] = 1;
  const separator_tree uneven = separate_by_min_fill(g, late);
  CHECK(uneven.vertices[0][0] >= n - 10);
}

TEST_CASE("each connected component is a root") {
  const std::vector<undirected_graph::edge> edges{{0, 1}, {2, 3}};
  const undirected_graph g(5, edges);
  const separator_tree tree = separate_by_min_fill(g, std::vector<double>(5, 1.0));
  check_tree(g, tree);
  std::size_t roots = 0;
  for (const std::uint32_t up : tree.parent) roots += up == separator_tree::none;
  CHECK(roots == 3);
}
