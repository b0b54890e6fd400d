// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <boost/functional/hash.hpp>
#include <boost/graph/graph_traits.hpp>
#include <cstddef>
#include <unordered_map>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/treewidth/undirected_graph.hpp"

namespace REMAT_NAMESPACE {

/// The edges of a Boost.Graph graph, directed or not, for `undirected_graph`: vertices are numbered in the order of
/// `vertices(g)`, so no vertex index is needed. `Graph` lists its vertices and its edges (VertexListGraph and
/// EdgeListGraph). Refers to the graph while it is used; O(V) memory. Models `edge_listing`.
/// Throws `bad_graph` for an edge whose end is not one of the vertices.
///
///     boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS> g = …;
///     const boost_edges edges(g);
///     const decomposition_result r = decompose(undirected_graph(edges));
///     // bag entry v is vertex edges.vertex(v) of g
template <class Graph>
class boost_edges {
 public:
  using vertex_descriptor =
      typename boost::graph_traits<Graph>::vertex_descriptor;  ///< the descriptor of a vertex of `Graph`

  /// Numbers the vertices. Keeps a reference to `g`. O(V) time.
  explicit boost_edges(const Graph& g) : graph_(&g) {
    const auto [first, last] = vertices(g);
    for (auto v = first; v != last; ++v) {
      number_.emplace(*v, vertex_.size());
      vertex_.push_back(*v);
    }
  }

  /// The number of vertices; the numbers of the vertices are 0 … num_vertices() − 1.
  [[nodiscard]] std::size_t num_vertices() const noexcept { return vertex_.size(); }
  /// The vertex with a number.
  [[nodiscard]] const vertex_descriptor& vertex(std::size_t number) const noexcept { return vertex_[number]; }

  /// Calls f(u, v) with the numbers of both ends of every edge.
  template <class F>
  void for_each_edge(F&& f) const {
    const auto [first, last] = edges(*graph_);
    for (auto e = first; e != last; ++e) f(number(source(*e, *graph_)), number(target(*e, *graph_)));
  }

 private:
  [[nodiscard]] std::size_t number(const vertex_descriptor& v) const {
    const auto found = number_.find(v);
    if (found == number_.end()) throw bad_graph("an edge ends at a vertex that is not in the graph");
    return found->second;
  }

  const Graph* graph_;
  std::vector<vertex_descriptor> vertex_;
  std::unordered_map<vertex_descriptor, std::size_t, boost::hash<vertex_descriptor>> number_;
};

}  // namespace REMAT_NAMESPACE
