// SPDX-License-Identifier: BSL-1.0
#include "remat/treewidth/detail/safe_separators.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "remat/treewidth/detail/elimination_order.hpp"
#include "support/exhaustive_treewidth.hpp"

namespace {

using remat::tree_decomposition;
using remat::undirected_graph;
using namespace remat::test;

/// Edges of the graph in which every bag is a clique.
std::vector<undirected_graph::edge> filled(const tree_decomposition& t) {
  std::vector<undirected_graph::edge> edges;
  for (std::size_t b = 0; b < t.size(); ++b)
    for (const std::uint32_t u : t.bags[b])
      for (const std::uint32_t v : t.bags[b])
        if (u < v) edges.emplace_back(u, v);
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

/// True when elimination in some order adds no edge: maximum cardinality search finds such an order if there is one.
bool chordal(const undirected_graph& g) {
  const auto order = remat::detail::maximum_cardinality_order(g);
  return filled(remat::decomposition_of(g, order)).size() == g.num_edges();
}

std::vector<std::uint32_t> shared(const tree_decomposition& t, std::size_t edge) {
  const auto a = t.bags[t.edges[edge].first], b = t.bags[t.edges[edge].second];
  std::vector<std::uint32_t> out;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

}  // namespace

TEST_CASE("a minimal decomposition: within the given one, and no added edge can go") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    const auto n = static_cast<std::uint32_t>(4 + seed % 10);
    const undirected_graph g = random_undirected(seed, n, static_cast<std::uint32_t>(15 + seed % 30));
    std::vector<std::uint32_t> order(n);
    for (std::uint32_t v = 0; v < n; ++v) order[v] = v;
    const tree_decomposition t = remat::decomposition_of(g, order);
    const tree_decomposition m = remat::detail::minimal_decomposition(g, t);
    REQUIRE(remat::check_decomposition(g, m).valid());
    const auto before = filled(t), after = filled(m);
    CHECK(std::includes(before.begin(), before.end(), after.begin(), after.end()));
    for (const auto& e : after) {
      if (g.adjacent(e.first, e.second)) continue;
      std::vector<undirected_graph::edge> less(after);
      std::erase(less, e);
      CHECK_FALSE(chordal(undirected_graph(n, less)));
    }
  }
}

TEST_CASE("a separator that a test calls safe is safe: making it a clique does not change the treewidth") {
  int almost = 0, minor = 0, neither = 0;
  for (std::uint64_t seed = 0; seed < 700; ++seed) {
    CAPTURE(seed);
    const auto n = static_cast<std::uint32_t>(5 + seed % 7);
    const undirected_graph g = random_undirected(seed, n, static_cast<std::uint32_t>(20 + seed % 30));
    const tree_decomposition t =
        remat::detail::minimal_decomposition(g, remat::decomposition_of(g, remat::detail::greedy_order(g)));
    const std::int64_t width = exhaustive_treewidth(g);
    remat::detail::safe_separator_test test(g);
    for (std::size_t e = 0; e < t.edges.size(); ++e) {
      const auto s = shared(t, e);
      if (s.empty()) continue;
      const bool a = test.almost_clique(s), c = test.clique_minor(s);
      almost += a;
      minor += c;
      neither += !a && !c;
      if (!a && !c) continue;
      std::vector<undirected_graph::edge> more;
      g.for_each_edge([&](std::uint32_t u, std::uint32_t v) { more.emplace_back(u, v); });
      for (const std::uint32_t u : s)
        for (const std::uint32_t v : s)
          if (u < v) more.emplace_back(u, v);
      CHECK(exhaustive_treewidth(undirected_graph(n, more)) == width);
    }
  }
  CHECK(almost > 500);
  CHECK(minor > 100);
  CHECK(neither > 10);
}

TEST_CASE("the torso of some bags: their graph, in which the separators from other bags are cliques") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    const undirected_graph g = random_undirected(seed, 20, 15);
    const tree_decomposition t = remat::decomposition_of(g, remat::detail::greedy_order(g));
    const auto links = t.links();
    std::vector<std::uint32_t> number(20, remat::undirected_graph::none);
    // A connected part of the tree: bags found first from one of them.
    std::vector<std::uint32_t> chosen{static_cast<std::uint32_t>(seed % t.size())};
    for (std::size_t i = 0; i < chosen.size() && chosen.size() < t.size() / 2 + 1; ++i)
      for (const std::uint32_t b : links[chosen[i]])
        if (std::find(chosen.begin(), chosen.end(), b) == chosen.end() && chosen.size() < t.size() / 2 + 1)
          chosen.push_back(b);
    const remat::detail::torso side = remat::detail::torso_of(g, t, links, chosen, number);
    CHECK(std::count(number.begin(), number.end(), remat::undirected_graph::none) == 20);
    CHECK(remat::check_decomposition(side.graph, side.tree).valid());
    CHECK(std::is_sorted(side.vertices.begin(), side.vertices.end()));
    const auto place = [&](std::uint32_t v) {
      return std::lower_bound(side.vertices.begin(), side.vertices.end(), v) - side.vertices.begin();
    };
    // Exactly the edges within, and the pairs that a bag outside shares with one inside.
    std::vector<undirected_graph::edge> expected;
    for (std::uint32_t i = 0; i < side.vertices.size(); ++i)
      for (std::uint32_t j = i + 1; j < side.vertices.size(); ++j)
        if (g.adjacent(side.vertices[i], side.vertices[j])) expected.emplace_back(i, j);
    for (std::size_t e = 0; e < t.edges.size(); ++e) {
      const auto in = [&](std::uint32_t b) { return std::find(chosen.begin(), chosen.end(), b) != chosen.end(); };
      if (in(t.edges[e].first) == in(t.edges[e].second)) continue;
      const auto s = shared(t, e);
      for (const std::uint32_t u : s)
        for (const std::uint32_t v : s)
          if (u < v) expected.emplace_back(static_cast<std::uint32_t>(place(u)), static_cast<std::uint32_t>(place(v)));
    }
    const undirected_graph wanted(side.vertices.size(), expected);
    CHECK(side.graph.rows().values == wanted.rows().values);
    CHECK(side.graph.rows().begin == wanted.rows().begin);
  }
}
