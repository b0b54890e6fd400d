// SPDX-License-Identifier: BSL-1.0
#include "remat/treewidth/detail/reduction.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "remat/treewidth/detail/elimination_order.hpp"
#include "remat/treewidth/impl/width_bound.hpp"
#include "support/exhaustive_treewidth.hpp"

namespace {

using remat::undirected_graph;
using namespace remat::test;
using edges = std::vector<undirected_graph::edge>;

}  // namespace

TEST_CASE("random graphs: the treewidth is the larger of the rest's and the bound") {
  std::size_t gone = 0;
  for (std::uint64_t seed = 0; seed < 1200; ++seed) {
    CAPTURE(seed);
    const auto n = static_cast<std::uint32_t>(2 + seed % 11);
    const undirected_graph g = random_undirected(seed, n, static_cast<std::uint32_t>(15 + seed * 13 % 55));
    const std::int64_t width = exhaustive_treewidth(g);
    for (const std::int64_t low : {std::int64_t{0}, width / 2, width}) {  // all of them are bounds
      const remat::detail::reduced_graph r = remat::detail::reduce(g, static_cast<std::uint32_t>(low));
      gone += r.eliminated.size();
      CHECK(r.eliminated.size() + r.rest.num_vertices() == n);
      CHECK(r.vertices.size() == r.rest.num_vertices());
      CHECK(r.lower_bound >= low);
      CHECK(std::max<std::int64_t>(r.lower_bound, exhaustive_treewidth(r.rest)) == width);
      const auto order = remat::detail::greedy_order(r.rest);
      CHECK(elimination_width(g, r.lift(order)) <=
            std::max<std::int64_t>(r.lower_bound, elimination_width(r.rest, order)));
    }
    // For a width that is wanted: if there is one, then there is one of the rest too.
    for (std::uint32_t target = 0; target < n; ++target) {
      const remat::detail::reduced_graph r = remat::detail::reduce(g, target);
      const bool fits = r.lower_bound <= target && exhaustive_treewidth(r.rest) <= target;
      CHECK(fits == (width <= target));
    }
  }
  CHECK(gone > 10'000);
}

TEST_CASE("each rule") {
  CHECK(remat::detail::reduce(undirected_graph(3, {}), 0).rest.num_vertices() == 0);  // islets
  CHECK(remat::detail::reduce(k_tree(3, 50, 1), 0).rest.num_vertices() == 0);         // twigs
  CHECK(remat::detail::reduce(cycle_graph(9), 1).rest.num_vertices() == 9);           // no series yet
  CHECK(remat::detail::reduce(cycle_graph(9), 2).rest.num_vertices() == 0);           // series
  CHECK(remat::detail::reduce(k_tree(3, 50, 6), 0).lower_bound == 6);                 // simplicial
  // A clique of five less one edge, on a cycle of such: 0's neighbours are a clique but for one vertex.
  const undirected_graph almost(
      6, edges{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {3, 4}, {3, 5}, {1, 4}, {2, 5}, {4, 5}, {1, 5}, {2, 4}});
  CHECK(remat::detail::reduce(almost, 3).eliminated.size() > 0);
  CHECK(remat::detail::reduce(almost, 2).eliminated.empty());
}

TEST_CASE("buddies: two vertices with the same three neighbours") {
  // K(3, 3) has treewidth 3; no vertex is almost simplicial.
  edges e;
  for (std::uint32_t u = 0; u < 3; ++u)
    for (std::uint32_t v = 3; v < 6; ++v) e.emplace_back(u, v);
  const undirected_graph g(6, e);
  CHECK(exhaustive_treewidth(g) == 3);
  CHECK(remat::detail::reduce(g, 2).eliminated.empty());
  CHECK(remat::detail::reduce(g, 3).rest.num_vertices() == 0);
}

TEST_CASE("cubes: the cube's graph falls to its rule, and to no other") {
  edges e;
  for (std::uint32_t v = 0; v < 8; ++v)
    for (const std::uint32_t bit : {1U, 2U, 4U})
      if ((v & bit) == 0) e.emplace_back(v, v | bit);
  const undirected_graph g(8, e);
  CHECK(exhaustive_treewidth(g) == 3);
  CHECK(remat::detail::reduce(g, 2).eliminated.empty());
  const auto r = remat::detail::reduce(g, 3);
  CHECK(r.rest.num_vertices() == 0);
  CHECK(elimination_width(g, r.lift({})) == 3);
}

TEST_CASE("a stop leaves a valid rest") {
  const undirected_graph g = k_tree(2, 20000, 3);
  int calls = 0;
  const std::function<bool()> stop = [&] { return ++calls > 3; };
  const auto r = remat::detail::reduce(g, 0, &stop);
  CHECK(r.eliminated.size() > 100);
  CHECK(r.rest.num_vertices() > 100);
  CHECK(elimination_width(g, r.lift(remat::detail::greedy_order(r.rest))) == 3);
}
