// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"

namespace REMAT_NAMESPACE {

/// A graph that counts its vertices and lists its edges. An `undirected_graph` can be made from it.
///
/// `num_vertices()` is the number n of vertices; they are 0 … n − 1. `for_each_edge(f)` calls f(u, v) for every edge,
/// in any order. The direction does not matter; loops and repeated edges may occur.
template <class G>
concept edge_listing = requires(const G& g, void (*f)(std::size_t, std::size_t)) {
  { g.num_vertices() } -> std::convertible_to<std::size_t>;
  g.for_each_edge(f);
};

/// A simple undirected graph on the vertices 0 … n − 1: for each vertex its neighbours, ascending, without loops and
/// repetitions. Immutable. Models `edge_listing`.
///
/// O(n + edges · log(largest degree)) to build, 4 bytes a vertex and 8 an edge.
/// Throws `bad_graph` if an end of an edge is not a vertex, and for more than 2^31 vertices or 2^30 edges.
class undirected_graph {
 public:
  using edge = std::pair<std::uint32_t, std::uint32_t>;                             ///< the two ends of an edge
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();  ///< stands for "no vertex"

  /// The graph without vertices.
  undirected_graph() = default;

  /// A graph with `vertices` vertices and these edges. Loops and repeated edges are left out.
  undirected_graph(std::size_t vertices, std::span<const edge> edges) {
    build(vertices, [&](auto&& f) {
      for (const edge& e : edges) f(e.first, e.second);
    });
  }

  /// A graph with the vertices and edges of `g`. Loops and repeated edges are left out.
  template <edge_listing G>
  requires(!std::same_as<G, undirected_graph>) explicit undirected_graph(const G& g) {
    build(static_cast<std::size_t>(g.num_vertices()), [&](auto&& f) { g.for_each_edge(f); });
  }

  /// The number n of vertices.
  [[nodiscard]] std::size_t num_vertices() const noexcept { return rows_.size(); }
  /// The number of edges, each counted once.
  [[nodiscard]] std::size_t num_edges() const noexcept { return rows_.values.size() / 2; }
  /// The number of neighbours of vertex `v`. Precondition: `v` < num_vertices().
  [[nodiscard]] std::size_t degree(std::size_t v) const noexcept { return rows_.begin[v + 1] - rows_.begin[v]; }
  /// The neighbours of vertex `v`, ascending. Precondition: `v` < num_vertices().
  [[nodiscard]] std::span<const std::uint32_t> neighbours(std::size_t v) const noexcept { return rows_[v]; }
  /// True when an edge joins `u` and `v`. O(log degree) time. Precondition: both are vertices.
  [[nodiscard]] bool adjacent(std::uint32_t u, std::uint32_t v) const noexcept {
    const auto row = degree(u) < degree(v) ? rows_[u] : rows_[v];
    return std::binary_search(row.begin(), row.end(), degree(u) < degree(v) ? v : u);
  }
  /// Vertex → its neighbours.
  [[nodiscard]] const index_rows& rows() const noexcept { return rows_; }

  /// Calls f(u, v), u < v, for every edge.
  template <class F>
  void for_each_edge(F&& f) const {
    for (std::uint32_t u = 0; u < num_vertices(); ++u)
      for (const std::uint32_t v : neighbours(u))
        if (u < v) f(u, v);
  }

 private:
  template <class ForEach>
  void build(std::size_t n, ForEach&& for_each) {
    constexpr std::size_t limit = std::numeric_limits<std::uint32_t>::max() / 2;
    if (n > limit) throw bad_graph("there are more than 2^31 vertices");
    std::vector<std::uint32_t> count(n, 0);
    std::size_t total = 0;
    for_each([&](std::size_t u, std::size_t v) {
      for (const std::size_t end : {u, v})
        if (end >= n)
          throw bad_graph("edge (" + std::to_string(u) + ", " + std::to_string(v) + "): " + std::to_string(end) +
                          " is not a vertex; there are " + std::to_string(n) + ", counted from 0");
      if (u == v) return;
      ++count[u];
      ++count[v];
      total += 2;
    });
    if (total > limit) throw bad_graph("there are more than 2^30 edges");
    std::vector<std::uint32_t> at(n), values(total);
    std::exclusive_scan(count.begin(), count.end(), at.begin(), 0U);
    for_each([&](std::size_t u, std::size_t v) {
      if (u == v) return;
      values[at[u]++] = static_cast<std::uint32_t>(v);
      values[at[v]++] = static_cast<std::uint32_t>(u);
    });
    rows_.begin.assign(1, 0);
    rows_.begin.reserve(n + 1);
    rows_.values.reserve(total);
    for (std::size_t v = 0; v < n; ++v) {
      const auto last = values.begin() + at[v], first = last - count[v];
      if (!std::is_sorted(first, last)) std::sort(first, last);
      rows_.values.insert(rows_.values.end(), first, std::unique(first, last));
      rows_.end_row();
    }
  }

  index_rows rows_;
};

/// A tree decomposition of a graph: a tree whose nodes are *bags* of vertices. Every vertex is in a bag, both ends of
/// every edge are in one bag, and the bags of each vertex are connected in the tree. The width is the size of the
/// largest bag less one. The treewidth of the graph is the least width of its tree decompositions.
///
///     tree_decomposition t = decompose(operation_graph(problem)).tree;
///     for (std::size_t b = 0; b < t.size(); ++b)
///       for (const std::uint32_t v : t.bags[b]) …;   // the operations of bag b
///     index_rows links = t.links();                  // bag → the bags beside it
struct tree_decomposition {
  index_rows bags;                            ///< bag → its vertices, ascending
  std::vector<undirected_graph::edge> edges;  ///< the tree's edges: pairs of bags

  /// The number of bags.
  [[nodiscard]] std::size_t size() const noexcept { return bags.size(); }
  /// The size of the largest bag less one; −1 without bags.
  [[nodiscard]] std::int64_t width() const noexcept {
    std::size_t largest = 0;
    for (std::size_t b = 0; b < bags.size(); ++b) largest = std::max(largest, bags[b].size());
    return static_cast<std::int64_t>(largest) - 1;
  }
  /// Appends a bag. Precondition: its vertices are ascending.
  void add_bag(std::span<const std::uint32_t> vertices) {
    bags.values.insert(bags.values.end(), vertices.begin(), vertices.end());
    bags.end_row();
  }
  /// Bag → the bags beside it in the tree, ascending. O(bags · log) time.
  [[nodiscard]] index_rows links() const { return undirected_graph(bags.size(), edges).rows(); }
};

/// The tree decomposition of an elimination order. The bag of a vertex is the vertex and its neighbours at its
/// elimination. Bags that are subsets of a neighbouring bag are left out: the bags are the maximal cliques of the
/// filled graph, at most n. All vertices from position `clique_from` on are put into one bag.
///
/// The bags are found by merging along the elimination tree, without a filled graph (Liu \cite liu1990elimination).
/// O(sum over vertices of their bag sizes · log) time. Throws `bad_argument` if `order` is not a permutation of the
/// vertices.
[[nodiscard]] tree_decomposition decomposition_of(const undirected_graph& g, std::span<const std::uint32_t> order,
                                                  std::size_t clique_from = std::numeric_limits<std::size_t>::max());

/// An elimination order of `vertices` vertices whose bags are those of `t`, or subsets of them. Removes the leaves of
/// the tree one by one; the vertices of a leaf that no other bag holds come next in the order. O(sum of bag sizes)
/// time.
[[nodiscard]] std::vector<std::uint32_t> elimination_order_of(const tree_decomposition& t, std::size_t vertices);

/// Merges each bag that is a subset of a neighbouring one into that bag. O(sum over tree edges of both bag sizes) time.
[[nodiscard]] tree_decomposition without_subsets(const tree_decomposition& t);

/// Makes a forest of bags a tree: joins each of its trees to the first by one edge. O(bags) time.
void connect_bags(tree_decomposition& t);

/// The result of `check_decomposition`.
struct decomposition_report {
  std::vector<std::string> violations;  ///< ten violations at most, in words; vertices and bags are counted from 0
  std::int64_t width = -1;              ///< the size of the largest bag less one

  /// True when the checker found no violation.
  [[nodiscard]] bool valid() const noexcept { return violations.empty(); }
};

/// Checks that `t` is a tree decomposition of `g`, from the definition alone: the bags hold vertices, each once; the
/// edges make a tree; every vertex is in a bag; both ends of every edge are in one bag; the bags of each vertex are
/// connected in the tree. The checker shares no code with the functions that make decompositions.
///
/// A graph without vertices has the decomposition without bags. Never throws for a wrong decomposition.
/// O(sum of bag sizes + sum over the graph's edges of (bags that hold one end) · log) time.
[[nodiscard]] decomposition_report check_decomposition(const undirected_graph& g, const tree_decomposition& t);

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/treewidth/impl/tree_decomposition.hpp"
#endif
