// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "remat/core/index_rows.hpp"
#include "remat/treewidth/undirected_graph.hpp"

namespace remat {

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
  std::vector<undirected_graph::edge> edges;  ///< of the tree: pairs of bags

  /// The number of bags.
  [[nodiscard]] std::size_t size() const noexcept { return bags.size(); }
  /// The size of the largest bag less one; −1 without bags.
  [[nodiscard]] std::int64_t width() const noexcept {
    std::int64_t largest = 0;
    for (std::size_t b = 0; b < bags.size(); ++b)
      largest = std::max(largest, static_cast<std::int64_t>(bags[b].size()));
    return largest - 1;
  }
  /// Bag → the bags beside it in the tree, ascending. O(bags · log) time.
  [[nodiscard]] index_rows links() const { return undirected_graph(bags.size(), edges).rows(); }
};

/// The tree decomposition of an elimination order. The bag of a vertex is the vertex and its neighbours at its
/// elimination. Bags that are subsets of a neighbouring bag are left out: the bags are the maximal cliques of the
/// filled graph, at most n. From position `clique_from` on, all vertices are put into one bag.
///
/// The bags are found by merging along the elimination tree, without a filled graph (Liu \cite liu1990elimination).
/// O(sum over vertices of their bag sizes · log) time. Throws `bad_argument` if `order` is no permutation of the
/// vertices.
[[nodiscard]] tree_decomposition decomposition_of(const undirected_graph& g, std::span<const std::uint32_t> order,
                                                  std::size_t clique_from = std::numeric_limits<std::size_t>::max());

/// An elimination order of `vertices` vertices whose bags are those of `t`, or subsets of them: removes the leaves of
/// the tree one by one, and orders the vertices that no other bag holds. O(sum of bag sizes) time.
[[nodiscard]] std::vector<std::uint32_t> elimination_order_of(const tree_decomposition& t, std::size_t vertices);

/// Merges each bag that is a subset of a neighbouring one into that bag. O(sum over tree edges of both bag sizes) time.
[[nodiscard]] tree_decomposition without_subsets(const tree_decomposition& t);

/// Makes a forest of bags a tree: joins each of its trees to the first by one edge. O(bags) time.
void connect_bags(tree_decomposition& t);

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/treewidth/impl/tree_decomposition.hpp"
#endif
