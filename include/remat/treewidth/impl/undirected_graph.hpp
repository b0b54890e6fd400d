// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/undirected_graph.hpp"

#include <algorithm>
#include <vector>

#include "remat/core/linkage.hpp"

namespace remat {

REMAT_INLINE undirected_graph operation_graph(const flat_graph& graph, operation_edges which) {
  const std::uint32_t n = graph.num_operations;
  index_rows makers;                                 // operation → those that make what it reads, ascending
  std::vector<std::vector<std::uint32_t>> users(n);  // operation → those that read what it makes
  std::vector<undirected_graph::edge> edges;
  for (std::uint32_t o = 0; o < n; ++o) {
    std::vector<std::uint32_t> row;
    for (const std::uint32_t t : graph.inputs[o])
      row.insert(row.end(), graph.producers[t].begin(), graph.producers[t].end());
    std::sort(row.begin(), row.end());
    row.erase(std::unique(row.begin(), row.end()), row.end());
    for (const std::uint32_t m : row) {
      edges.emplace_back(m, o);
      users[m].push_back(o);
    }
    makers.values.insert(makers.values.end(), row.begin(), row.end());
    makers.end_row();
  }
  if (which == operation_edges::moral) {
    // Each pair once, however many operations read from both.
    std::vector<std::uint32_t> met(n, n);
    for (std::uint32_t a = 0; a < n; ++a)
      for (const std::uint32_t o : users[a])
        for (const std::uint32_t b : makers[o]) {
          if (b >= a) break;
          if (met[b] != a) edges.emplace_back(b, a);
          met[b] = a;
        }
  }
  return undirected_graph(n, edges);
}

REMAT_INLINE undirected_graph induced_subgraph(const undirected_graph& g, std::span<const std::uint32_t> vertices,
                                               std::vector<std::uint32_t>& number) {
  std::vector<undirected_graph::edge> edges;
  for (std::uint32_t i = 0; i < vertices.size(); ++i) number[vertices[i]] = i;
  for (std::uint32_t i = 0; i < vertices.size(); ++i)
    for (const std::uint32_t u : g.neighbours(vertices[i]))
      if (number[u] != undirected_graph::none && number[u] > i) edges.emplace_back(i, number[u]);
  for (const std::uint32_t v : vertices) number[v] = undirected_graph::none;
  return undirected_graph(vertices.size(), edges);
}

}  // namespace remat
