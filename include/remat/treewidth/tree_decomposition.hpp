// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/treewidth/undirected_graph.hpp"

namespace REMAT_NAMESPACE {

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
