// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace REMAT_NAMESPACE::detail {

/// \file
/// Subgraphs of a graph, and its tree decomposition from those of its subgraphs.

/// Extends `reached` by the vertices that it reaches, breadth first. enter(v) returns true when v may be entered, the
/// first time that it is asked; the vertices in `reached` have been entered. O(sum of degrees) time.
template <class Enter>
void extend_reach(const index_rows& neighbours, std::vector<std::uint32_t>& reached, Enter&& enter) {
  for (std::size_t i = 0; i < reached.size(); ++i)
    for (const std::uint32_t u : neighbours[reached[i]])
      if (enter(u)) reached.push_back(u);
}

/// The connected components of a graph, by their least vertices; the vertices of each breadth first from the least.
[[nodiscard]] inline std::vector<std::vector<std::uint32_t>> components_of(const undirected_graph& g) {
  std::vector<std::uint8_t> seen(g.num_vertices(), 0);
  std::vector<std::vector<std::uint32_t>> components;
  const auto enter = [&](std::uint32_t v) { return !std::exchange(seen[v], std::uint8_t{1}); };
  for (std::uint32_t v = 0; v < g.num_vertices(); ++v)
    if (enter(v)) extend_reach(g.rows(), components.emplace_back(1, v), enter);
  return components;
}

/// The subgraph on some vertices of g, which are numbered by their places in `vertices`. `number` is working memory:
/// `undirected_graph::none` for every vertex of g, before and after the call. O(sum of degrees · log) time.
[[nodiscard]] inline undirected_graph induced_subgraph(const undirected_graph& g,
                                                       std::span<const std::uint32_t> vertices,
                                                       std::vector<std::uint32_t>& number) {
  std::vector<undirected_graph::edge> edges;
  for (std::uint32_t i = 0; i < vertices.size(); ++i) number[vertices[i]] = i;
  for (std::uint32_t i = 0; i < vertices.size(); ++i)
    for (const std::uint32_t u : g.neighbours(vertices[i]))
      if (number[u] != undirected_graph::none && number[u] > i) edges.emplace_back(i, number[u]);
  for (const std::uint32_t v : vertices) number[v] = undirected_graph::none;
  return undirected_graph(vertices.size(), edges);
}

/// Appends the bags and edges of `other`, whose vertex v is `vertices[v]` in `t`. No edge joins them to the bags before
/// them.
inline void append_tree(tree_decomposition& t, const tree_decomposition& other,
                        std::span<const std::uint32_t> vertices) {
  const auto first = static_cast<std::uint32_t>(t.size());
  for (std::size_t b = 0; b < other.size(); ++b) {
    for (const std::uint32_t v : other.bags[b]) t.bags.values.push_back(vertices[v]);
    const auto begin = t.bags.values.end() - static_cast<std::ptrdiff_t>(other.bags[b].size());
    if (!std::is_sorted(begin, t.bags.values.end())) std::sort(begin, t.bags.values.end());
    t.bags.end_row();
  }
  for (const auto& [a, b] : other.edges) t.edges.emplace_back(first + a, first + b);
}

/// The vertices that two bags have in common, ascending.
[[nodiscard]] inline std::vector<std::uint32_t> common_vertices(const tree_decomposition& t, std::uint32_t a,
                                                                std::uint32_t b) {
  std::vector<std::uint32_t> common;
  std::set_intersection(t.bags[a].begin(), t.bags[a].end(), t.bags[b].begin(), t.bags[b].end(),
                        std::back_inserter(common));
  return common;
}

/// The first bag from bag `first` on that holds all of `vertices`, which are ascending.
[[nodiscard]] inline std::uint32_t find_bag(const tree_decomposition& t, std::uint32_t first,
                                            std::span<const std::uint32_t> vertices) {
  for (std::uint32_t b = first; b < t.size(); ++b)
    if (const auto bag = t.bags[b]; std::includes(bag.begin(), bag.end(), vertices.begin(), vertices.end())) return b;
  throw internal_error("no bag of a decomposition holds a separator that it shares with another one");
}

}  // namespace REMAT_NAMESPACE::detail
