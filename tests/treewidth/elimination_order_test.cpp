// SPDX-License-Identifier: BSL-1.0
#include "remat/treewidth/detail/elimination_order.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "remat/treewidth/detail/adjacency.hpp"
#include "remat/treewidth/tree_decomposition.hpp"
#include "support/exhaustive_treewidth.hpp"

namespace {

using remat::undirected_graph;
using namespace remat::test;
using namespace remat::detail;

constexpr elimination_rule rules[] = {elimination_rule::min_degree, elimination_rule::min_fill,
                                      elimination_rule::fill_and_degree, elimination_rule::sparsest};

bool is_permutation_of_vertices(std::vector<std::uint32_t> order, std::size_t n) {
  std::sort(order.begin(), order.end());
  for (std::uint32_t v = 0; v < n; ++v)
    if (order.size() != n || order[v] != v) return false;
  return true;
}

/// Checks that each vertex has the least score by the rule, until the vertices that are left cannot make the order
/// wider.
template <class Adjacency>
void check_greedy(const undirected_graph& g, elimination_rule rule, std::uint64_t seed) {
  greedy_options options;
  options.rule = rule;
  options.seed = seed;
  const auto order = elimination_order::greedy<Adjacency>(g, options).run();
  REQUIRE(is_permutation_of_vertices(order, g.num_vertices()));
  std::size_t width = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto now = play(g, order)[i];
    width = std::max(width, now.first);
    if (i + 1 + width + 1 >= order.size()) break;
    for (std::size_t j = i + 1; j < order.size(); ++j) {
      std::vector<std::uint32_t> other(order);
      std::swap(other[i], other[j]);
      const auto then = play(g, other)[i];
      if (rule == elimination_rule::min_degree) CHECK(now.first <= then.first);
      if (rule == elimination_rule::min_fill) CHECK(now.second <= then.second);
      if (rule == elimination_rule::fill_and_degree && then.second > 0)
        CHECK(now.second + (now.second > 0 ? now.first : 0) <= then.second + then.first);
    }
  }
}

}  // namespace

TEST_CASE("greedy orders take a vertex with least of what they count, dense and sparse") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    const undirected_graph g = random_undirected(seed, 13, static_cast<std::uint32_t>(15 + 3 * seed));
    for (const elimination_rule rule : rules) {
      check_greedy<dense_adjacency>(g, rule, seed);
      check_greedy<sparse_adjacency>(g, rule, seed);
    }
  }
}

TEST_CASE("dense and sparse give the same order; a few neighbours go into a long row") {
  for (const undirected_graph& g : {grid_graph(7, 9), k_tree(5, 150, 4, 30), random_undirected(4, 90, 8), [] {
                                      std::vector<undirected_graph::edge> edges;
                                      for (std::uint32_t v = 1; v < 120; ++v) edges.emplace_back(0, v);
                                      for (std::uint32_t v = 3; v < 120; v += 3) edges.emplace_back(v - 2, v);
                                      return undirected_graph(120, edges);
                                    }()})
    for (const elimination_rule rule : rules) {
      greedy_options options;
      options.rule = rule;
      options.seed = 3;
      CHECK(elimination_order::greedy<dense_adjacency>(g, options).run() ==
            elimination_order::greedy<sparse_adjacency>(g, options).run());
    }
}

TEST_CASE("least fill and maximum cardinality search add nothing to a chordal graph") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const undirected_graph g = k_tree(seed, 80, 5);
    CHECK(elimination_width(g, greedy_order(g, {.seed = seed})) == 5);
    const auto order = maximum_cardinality_order(g);
    REQUIRE(is_permutation_of_vertices(order, 80));
    std::size_t fill = 0;
    for (const auto& step : play(g, order)) fill += step.second;
    CHECK(fill == 0);
  }
}

TEST_CASE("ranks come in order; it gives up at a width; it can be stopped; a seed decides ties") {
  const undirected_graph g = grid_graph(8, 8);
  std::vector<std::uint32_t> rank(64);
  for (std::uint32_t v = 0; v < 64; ++v) rank[v] = v % 3;
  greedy_options options;
  options.rank = rank;
  const auto order = greedy_order(g, options);
  REQUIRE(is_permutation_of_vertices(order, 64));
  for (std::size_t i = 1; i < order.size(); ++i) CHECK(rank[order[i - 1]] <= rank[order[i]]);
  options.rank = {};
  options.give_up = 8;  // the treewidth
  CHECK(greedy_order(g, options).empty());
  options.give_up = remat::undirected_graph::none;
  const std::function<bool()> stop = [] { return true; };
  options.stop = &stop;
  CHECK(greedy_order(random_undirected(1, 300, 50), options).empty());
  CHECK(greedy_order(g, {.rule = elimination_rule::min_degree, .seed = 1}) ==
        greedy_order(g, {.rule = elimination_rule::min_degree, .seed = 1}));
  CHECK(greedy_order(g, {.rule = elimination_rule::min_degree, .seed = 1}) !=
        greedy_order(g, {.rule = elimination_rule::min_degree, .seed = 2}));
  CHECK(greedy_order(undirected_graph()).empty());
}
