// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/undirected_graph.hpp"

#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace remat {

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
