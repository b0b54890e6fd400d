// SPDX-License-Identifier: BSL-1.0
#include "remat/treewidth/detail/positive_instance.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "remat/treewidth/tree_decomposition.hpp"
#include "support/exhaustive_treewidth.hpp"

namespace {

using remat::undirected_graph;
using namespace remat::test;
using namespace remat::detail;

}  // namespace

TEST_CASE("every width of random graphs is found or refuted, as the exhaustive recurrence has it") {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    const auto n = static_cast<std::uint32_t>(2 + seed % 11);
    const undirected_graph g = random_undirected(seed, n, static_cast<std::uint32_t>(15 + seed * 11 % 60));
    const std::int64_t width = exhaustive_treewidth(g);
    for (std::uint32_t k = 0; k < n; ++k) {
      const width_decision decision = decide_width(g, k);
      REQUIRE(decision.verdict == (k < width ? width_verdict::refuted : width_verdict::found));
      if (decision.verdict != width_verdict::found) continue;
      const auto report = remat::check_decomposition(g, decision.tree);
      CHECK(report.valid());
      CHECK(report.width <= k);
    }
  }
}

TEST_CASE("graphs of more words: grids, k-trees, random ones, by other numbers") {
  for (std::uint32_t columns : {5U, 14U, 30U}) {  // 20, 56, 120 vertices
    const undirected_graph g = grid_graph(4, columns);
    CHECK(decide_width(g, 3).verdict == width_verdict::refuted);
    const auto four = decide_width(g, 4);
    REQUIRE(four.verdict == width_verdict::found);
    CHECK(remat::check_decomposition(g, four.tree).width == 4);
  }
  for (std::uint32_t n : {70U, 150U, 220U}) {
    const undirected_graph g = k_tree(n, n, 3);
    CHECK(decide_width(g, 2).verdict == width_verdict::refuted);
    const auto three = decide_width(g, 3);
    REQUIRE(three.verdict == width_verdict::found);
    CHECK(remat::check_decomposition(g, three.tree).valid());
  }
  for (std::uint32_t n : {300U, 450U, 700U}) {
    CHECK(decide_width(cycle_graph(n), 1).verdict == width_verdict::refuted);
    const undirected_graph tree = grid_graph(1, n);
    const auto one = decide_width(tree, 1);
    REQUIRE(one.verdict == width_verdict::found);
    CHECK(remat::check_decomposition(tree, one.tree).width == 1);
  }
}

TEST_CASE("the order of the vertices does not matter") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const undirected_graph g = random_undirected(seed, 24, 15);
    std::vector<std::uint32_t> number(24);
    for (std::uint32_t v = 0; v < 24; ++v) number[v] = v;
    std::mt19937_64 random(seed);
    std::shuffle(number.begin(), number.end(), random);
    std::vector<undirected_graph::edge> edges;
    g.for_each_edge([&](std::uint32_t u, std::uint32_t v) { edges.emplace_back(number[u], number[v]); });
    const undirected_graph h(24, edges);
    for (std::uint32_t k = 1; k < 10; ++k) CHECK(decide_width(g, k).verdict == decide_width(h, k).verdict);
  }
}

TEST_CASE("limits leave it unfinished") {
  const undirected_graph g = random_undirected(1, 100, 10);
  width_search_limits limits;
  limits.work = 1000;
  CHECK(decide_width(g, 20, limits).verdict == width_verdict::unfinished);
  CHECK(decide_width(g, 20, limits).work >= 1000);
  limits.work = std::numeric_limits<std::uint64_t>::max();
  limits.bytes = 100'000;
  CHECK(decide_width(g, 20, limits).verdict == width_verdict::unfinished);
  const std::function<bool()> stop = [] { return true; };
  limits.bytes = std::size_t{1} << 29U;
  limits.stop = &stop;
  CHECK(decide_width(g, 20, limits).verdict == width_verdict::unfinished);
  CHECK(decide_width(k_tree(1, 2000, 2), 2).verdict == width_verdict::unfinished);  // too many vertices
}
