// SPDX-License-Identifier: BSL-1.0
#include "remat/treewidth/tree_decomposition.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "remat/treewidth/detail/elimination_order.hpp"
#include "support/exhaustive_treewidth.hpp"

namespace {

using remat::check_decomposition;
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

/// True when a bag is a subset of a bag beside it.
bool has_subsets(const tree_decomposition& t) {
  for (const auto& [a, b] : t.edges) {
    const auto x = t.bags[a], y = t.bags[b];
    if (std::includes(x.begin(), x.end(), y.begin(), y.end()) || std::includes(y.begin(), y.end(), x.begin(), x.end()))
      return true;
  }
  return false;
}

tree_decomposition made(const std::vector<std::vector<std::uint32_t>>& bags,
                        std::vector<undirected_graph::edge> edges) {
  tree_decomposition t;
  for (const auto& bag : bags) t.add_bag(bag);
  t.edges = std::move(edges);
  return t;
}

std::string first_violation(const undirected_graph& g, const tree_decomposition& t) {
  const auto report = check_decomposition(g, t);
  return report.valid() ? "" : report.violations[0];
}

/// The definition once more, on sets and paths: slow, and without the library's code.
bool valid_by_definition(const undirected_graph& g, const tree_decomposition& t) {
  const std::size_t bags = t.size();
  if (bags == 0) return g.num_vertices() == 0 && t.edges.empty();
  if (t.edges.size() + 1 != bags) return false;
  const auto reach = [&](std::uint32_t from, auto&& allowed) {
    std::vector<std::uint8_t> seen(bags, 0);
    seen[from] = 1;
    for (std::size_t again = 0; again < bags; ++again)
      for (const auto& [a, b] : t.edges)
        if (allowed(a) && allowed(b) && (seen[a] || seen[b])) seen[a] = seen[b] = 1;
    return seen;
  };
  for (const std::uint8_t s : reach(0, [](std::uint32_t) { return true; }))
    if (!s) return false;
  const auto holds = [&](std::uint32_t b, std::uint32_t v) {
    for (const std::uint32_t u : t.bags[b])
      if (u == v) return true;
    return false;
  };
  for (std::uint32_t v = 0; v < g.num_vertices(); ++v) {
    std::vector<std::uint32_t> where;
    for (std::uint32_t b = 0; b < bags; ++b)
      if (holds(b, v)) where.push_back(b);
    if (where.empty()) return false;
    const auto seen = reach(where[0], [&](std::uint32_t b) { return holds(b, v); });
    for (const std::uint32_t b : where)
      if (!seen[b]) return false;
    for (const std::uint32_t u : g.neighbours(v)) {
      bool together = false;
      for (const std::uint32_t b : where) together = together || holds(b, u);
      if (!together) return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("the decomposition of an order is valid, minimal in bags, and as wide as the order") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    const auto n = static_cast<std::uint32_t>(seed % 30);
    const undirected_graph g = random_undirected(seed, n, static_cast<std::uint32_t>(3 + seed % 40));
    const auto order = shuffled(n, seed);
    const tree_decomposition t = remat::decomposition_of(g, order);
    const auto report = check_decomposition(g, t);
    CHECK(report.valid());
    CHECK(t.width() == report.width);
    if (n == 0) continue;
    CHECK(t.width() == elimination_width(g, order));
    CHECK_FALSE(has_subsets(t));
    const tree_decomposition again = remat::decomposition_of(g, remat::elimination_order_of(t, n));
    CHECK(again.width() <= t.width());
    CHECK(check_decomposition(g, again).valid());
  }
}

TEST_CASE("an order that is not a permutation is an error") {
  const undirected_graph g = cycle_graph(4);
  CHECK_THROWS_AS((void)remat::decomposition_of(g, std::vector<std::uint32_t>{0, 1, 2}), remat::bad_argument);
  CHECK_THROWS_WITH_AS((void)remat::decomposition_of(g, std::vector<std::uint32_t>{0, 1, 2, 2}),
                       doctest::Contains("vertex 2 of the elimination order appears twice"), remat::bad_argument);
  CHECK_THROWS_WITH_AS((void)remat::decomposition_of(g, std::vector<std::uint32_t>{0, 1, 2, 4}),
                       doctest::Contains("is not a vertex of the graph"), remat::bad_argument);
}

TEST_CASE("bags that are subsets of their neighbours are merged, and the decomposition stays valid") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const auto n = static_cast<std::uint32_t>(2 + seed % 12);
    const undirected_graph g = random_undirected(seed, n, 30);
    // One bag for each vertex of an order, none left out: v and its later neighbours in the filled graph.
    tree_decomposition t = remat::decomposition_of(g, shuffled(n, seed));
    tree_decomposition more = t;
    std::mt19937_64 random(seed);
    for (int i = 0; i < 6; ++i) {  // a subset of a bag, joined to it
      const auto b = static_cast<std::uint32_t>(random() % more.size());
      std::vector<std::uint32_t> some;
      for (const std::uint32_t v : more.bags[b])
        if (random() % 3 != 0) some.push_back(v);
      more.edges.emplace_back(b, static_cast<std::uint32_t>(more.size()));
      more.add_bag(some);
    }
    REQUIRE(check_decomposition(g, more).valid());
    const tree_decomposition fewer = remat::without_subsets(more);
    CHECK(check_decomposition(g, fewer).valid());
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

TEST_CASE("the checker names each violation") {
  const undirected_graph path(4, std::vector<undirected_graph::edge>{{0, 1}, {1, 2}, {2, 3}});
  CHECK(first_violation(path, made({{0, 1}, {1, 2}, {2, 3}}, {{0, 1}, {1, 2}})).empty());
  CHECK(check_decomposition(path, made({{0, 1}, {1, 2}, {2, 3}}, {{0, 1}, {1, 2}})).width == 1);
  CHECK(first_violation(path, made({{0, 1}, {1, 2}, {2}}, {{0, 1}, {1, 2}})) == "vertex 3 is in no bag");
  CHECK(first_violation(path, made({{0, 1}, {2}, {2, 3}}, {{0, 1}, {1, 2}})) == "edge (1, 2) is in no bag");
  CHECK(first_violation(path, made({{0, 1}, {1, 2}, {2, 3}}, {{0, 1}})) ==
        "there are 1 tree edges; 3 bags need one less");
  CHECK(first_violation(path, made({{0, 1}, {1, 2}, {2, 3}}, {{0, 1}, {1, 0}})) ==
        "the tree edge between bags 1 and 0 closes a cycle");
  CHECK(first_violation(path, made({{0, 1}, {1, 2}, {2, 3}}, {{0, 1}, {1, 3}})) ==
        "a tree edge joins bags 1 and 3; there are 3");
  CHECK(first_violation(path, made({{0, 1}, {2, 3}, {1, 2}}, {{0, 1}, {1, 2}})) ==
        "the bags of vertex 1 are not connected in the tree");
  CHECK(first_violation(path, made({{0, 1, 9}, {1, 2}, {2, 3}}, {{0, 1}, {1, 2}})) ==
        "bag 0 holds 9, which is not a vertex");
  CHECK(first_violation(path, made({{1, 0}, {1, 2}, {2, 3}}, {{0, 1}, {1, 2}})) == "bag 0 is not ascending");
  CHECK(first_violation(path, tree_decomposition{}) == "vertex 0 is in no bag");
  CHECK(first_violation(undirected_graph(), tree_decomposition{}).empty());
}

TEST_CASE("mutated decompositions: the verdict is that of the definition") {
  int valid = 0, invalid = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    std::mt19937_64 random(seed);
    const undirected_graph g = random_undirected(seed, static_cast<std::uint32_t>(3 + seed % 8), 35);
    tree_decomposition t = remat::decomposition_of(g, remat::detail::greedy_order(g));
    std::vector<std::vector<std::uint32_t>> bags;
    for (std::size_t b = 0; b < t.size(); ++b) bags.emplace_back(t.bags[b].begin(), t.bags[b].end());
    std::vector<std::uint32_t>& bag = bags[random() % bags.size()];
    switch (random() % 4) {
      case 0:
        if (bag.size() > 1) bag.erase(bag.begin() + static_cast<std::ptrdiff_t>(random() % bag.size()));
        break;
      case 1: {
        const auto v = static_cast<std::uint32_t>(random() % g.num_vertices());
        if (std::find(bag.begin(), bag.end(), v) == bag.end())
          bag.insert(std::lower_bound(bag.begin(), bag.end(), v), v);
        break;
      }
      case 2:
        if (!t.edges.empty())
          t.edges[random() % t.edges.size()].first = static_cast<std::uint32_t>(random() % bags.size());
        break;
      default:
        if (!t.edges.empty()) t.edges.pop_back();
    }
    const tree_decomposition mutant = made(bags, t.edges);
    const bool expected = valid_by_definition(g, mutant);
    CHECK(check_decomposition(g, mutant).valid() == expected);
    ++(expected ? valid : invalid);
  }
  CHECK(valid > 100);
  CHECK(invalid > 500);
}
