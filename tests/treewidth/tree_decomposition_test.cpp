// SPDX-License-Identifier: BSL-1.0
#include "remat/treewidth/tree_decomposition.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "remat/treewidth/check.hpp"
#include "remat/treewidth/detail/elimination_order.hpp"
#include "support/exhaustive_treewidth.hpp"

namespace {

using remat::tree_decomposition;
using remat::undirected_graph;
using namespace remat::test;

std::vector<std::uint32_t> shuffled(std::uint32_t n, std::uint64_t seed) {
  std::vector<std::uint32_t> order(n);
  for (std::uint32_t v = 0; v < n; ++v) order[v] = v;
  std::mt19937_64 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

/// Whether a bag lies in another one beside it.
bool has_subsets(const tree_decomposition& t) {
  for (const auto& [a, b] : t.edges) {
    const auto x = t.bags[a], y = t.bags[b];
    if (std::includes(x.begin(), x.end(), y.begin(), y.end()) || std::includes(y.begin(), y.end(), x.begin(), x.end()))
      return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the decomposition of an order is valid, minimal in bags, and as wide as the order") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    const auto n = static_cast<std::uint32_t>(seed % 30);
    const undirected_graph g = random_undirected(seed, n, static_cast<std::uint32_t>(3 + seed % 40));
    const auto order = shuffled(n, seed);
    const tree_decomposition t = remat::decomposition_of(g, order);
    const auto report = remat::check_decomposition(g, t);
    CHECK(report.valid());
    CHECK(t.width() == report.width);
    if (n == 0) continue;
    CHECK(t.width() == remat::detail::elimination_width(g, order));
    CHECK_FALSE(has_subsets(t));
    const tree_decomposition again = remat::decomposition_of(g, remat::elimination_order_of(t, n));
    CHECK(again.width() <= t.width());
    CHECK(remat::check_decomposition(g, again).valid());
  }
}

TEST_CASE("an order that is no permutation is an error") {
  const undirected_graph g = cycle_graph(4);
  CHECK_THROWS_AS((void)remat::decomposition_of(g, std::vector<std::uint32_t>{0, 1, 2}), remat::bad_argument);
  CHECK_THROWS_WITH_AS((void)remat::decomposition_of(g, std::vector<std::uint32_t>{0, 1, 2, 2}),
                       doctest::Contains("vertex 2 of the elimination order appears twice"), remat::bad_argument);
  CHECK_THROWS_WITH_AS((void)remat::decomposition_of(g, std::vector<std::uint32_t>{0, 1, 2, 4}),
                       doctest::Contains("is no vertex of the graph"), remat::bad_argument);
}

TEST_CASE("bags within their neighbours are merged, and it stays a decomposition") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const auto n = static_cast<std::uint32_t>(2 + seed % 12);
    const undirected_graph g = random_undirected(seed, n, 30);
    // One bag for each vertex of an order, none left out: v and its later neighbours in the filled graph.
    tree_decomposition t = remat::decomposition_of(g, shuffled(n, seed));
    tree_decomposition more = t;
    std::mt19937_64 random(seed);
    for (int i = 0; i < 6; ++i) {  // a part of a bag, hung onto it
      const auto b = static_cast<std::uint32_t>(random() % more.size());
      std::vector<std::uint32_t> some;
      for (const std::uint32_t v : more.bags[b])
        if (random() % 3 != 0) some.push_back(v);
      more.edges.emplace_back(b, static_cast<std::uint32_t>(more.size()));
      more.bags.values.insert(more.bags.values.end(), some.begin(), some.end());
      more.bags.end_row();
    }
    REQUIRE(remat::check_decomposition(g, more).valid());
    const tree_decomposition fewer = remat::without_subsets(more);
    CHECK(remat::check_decomposition(g, fewer).valid());
    CHECK(fewer.width() == t.width());
    CHECK(fewer.size() <= t.size());
    CHECK_FALSE(has_subsets(fewer));
  }
}

TEST_CASE("links list each tree edge at both ends") {
  const undirected_graph g = cycle_graph(6);
  const tree_decomposition t = remat::decomposition_of(g, shuffled(6, 1));
  const auto links = t.links();
  CHECK(links.size() == t.size());
  CHECK(links.values.size() == 2 * t.edges.size());
  for (const auto& [a, b] : t.edges) {
    CHECK(std::find(links[a].begin(), links[a].end(), b) != links[a].end());
    CHECK(std::find(links[b].begin(), links[b].end(), a) != links[b].end());
  }
  CHECK(tree_decomposition{}.width() == -1);
  CHECK(tree_decomposition{}.links().size() == 0);
}
