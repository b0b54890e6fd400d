// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "remat/treewidth/tree_decomposition.hpp"

namespace remat::test {

/// The treewidth of a graph of at most 20 vertices: for every set of vertices, the least width of an order that
/// eliminates it first. The neighbours of v when S is gone are those that it reaches through S.
[[nodiscard]] inline std::int64_t exhaustive_treewidth(const undirected_graph& g) {
  const std::size_t n = g.num_vertices();
  if (n == 0) return -1;
  std::vector<std::uint32_t> rows(n, 0);
  g.for_each_edge([&](std::uint32_t u, std::uint32_t v) {
    rows[u] |= 1U << v;
    rows[v] |= 1U << u;
  });
  const auto degree = [&](std::uint32_t v, std::uint32_t gone) {
    std::uint32_t reached = rows[v], through = 0;
    for (std::uint32_t fresh = reached & gone; fresh != 0; fresh = reached & gone & ~through) {
      through |= fresh;
      for (std::uint32_t bits = fresh; bits != 0; bits &= bits - 1)
        reached |= rows[static_cast<unsigned>(std::countr_zero(bits))];
    }
    return std::popcount(reached & ~gone & ~(1U << v));
  };
  std::vector<int> best(std::size_t{1} << n, static_cast<int>(n));
  best[0] = 0;
  for (std::uint32_t gone = 0; gone + 1 < best.size(); ++gone)
    for (std::uint32_t v = 0; v < n; ++v) {
      if ((gone >> v & 1U) != 0) continue;
      int& to = best[gone | 1U << v];
      to = std::min(to, std::max(best[gone], degree(v, gone)));
    }
  return best.back();
}

/// Eliminates the vertices on plain sets. Position of the order → the neighbours left and the edges added.
[[nodiscard]] inline std::vector<std::pair<std::size_t, std::size_t>> play(const undirected_graph& g,
                                                                           const std::vector<std::uint32_t>& order) {
  std::vector<std::set<std::uint32_t>> rows(g.num_vertices());
  g.for_each_edge([&](std::uint32_t u, std::uint32_t v) {
    rows[u].insert(v);
    rows[v].insert(u);
  });
  std::vector<std::pair<std::size_t, std::size_t>> out;
  for (const std::uint32_t v : order) {
    std::size_t fill = 0;
    for (const std::uint32_t a : rows[v])
      for (const std::uint32_t b : rows[v])
        if (a < b && rows[a].insert(b).second) {
          rows[b].insert(a);
          ++fill;
        }
    for (const std::uint32_t a : rows[v]) rows[a].erase(v);
    out.emplace_back(rows[v].size(), fill);
  }
  return out;
}

/// The width of an elimination order: the largest number of neighbours that a vertex has when it is eliminated.
[[nodiscard]] inline std::int64_t elimination_width(const undirected_graph& g,
                                                    const std::vector<std::uint32_t>& order) {
  std::size_t width = 0;
  for (const auto& [neighbours, fill] : play(g, order)) width = std::max(width, neighbours);
  return static_cast<std::int64_t>(width);
}

/// A random graph: n vertices, each pair joined with the probability of `percent` in 100.
[[nodiscard]] inline undirected_graph random_undirected(std::uint64_t seed, std::uint32_t n, std::uint32_t percent) {
  std::mt19937_64 random(seed);
  std::vector<undirected_graph::edge> edges;
  for (std::uint32_t v = 0; v < n; ++v)
    for (std::uint32_t u = 0; u < v; ++u)
      if (random() % 100 < percent) edges.emplace_back(u, v);
  return undirected_graph(n, edges);
}

[[nodiscard]] inline undirected_graph grid_graph(std::uint32_t rows, std::uint32_t columns) {
  std::vector<undirected_graph::edge> edges;
  for (std::uint32_t r = 0; r < rows; ++r)
    for (std::uint32_t c = 0; c < columns; ++c) {
      const std::uint32_t v = r * columns + c;
      if (c + 1 < columns) edges.emplace_back(v, v + 1);
      if (r + 1 < rows) edges.emplace_back(v, v + columns);
    }
  return undirected_graph(std::size_t{rows} * columns, edges);
}

/// A k-tree: a clique of k + 1, then vertices each joined to a clique of k; its treewidth is k. Of the edges that come
/// with later vertices, `missing` in 100 are left out (then it is at most k).
[[nodiscard]] inline undirected_graph k_tree(std::uint64_t seed, std::uint32_t n, std::uint32_t k,
                                             std::uint32_t missing = 0) {
  std::mt19937_64 random(seed);
  std::vector<undirected_graph::edge> edges;
  std::vector<std::vector<std::uint32_t>> cliques{{}};
  for (std::uint32_t v = 0; v <= k; ++v) {
    for (const std::uint32_t u : cliques[0]) edges.emplace_back(u, v);
    cliques[0].push_back(v);
  }
  for (std::uint32_t v = k + 1; v < n; ++v) {
    std::vector<std::uint32_t> clique = cliques[random() % cliques.size()];
    clique.erase(clique.begin() + static_cast<std::ptrdiff_t>(random() % clique.size()));
    for (const std::uint32_t u : clique)
      if (random() % 100 >= missing) edges.emplace_back(u, v);
    clique.push_back(v);
    cliques.push_back(std::move(clique));
  }
  return undirected_graph(n, edges);
}

[[nodiscard]] inline undirected_graph cycle_graph(std::uint32_t n) {
  std::vector<undirected_graph::edge> edges;
  for (std::uint32_t v = 0; v < n; ++v) edges.emplace_back(v, (v + 1) % n);
  return undirected_graph(n, edges);
}

[[nodiscard]] inline undirected_graph complete_graph(std::uint32_t n) { return random_undirected(0, n, 100); }

}  // namespace remat::test
