// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "remat/treewidth/detail/elimination_rule.hpp"
#include "remat/treewidth/undirected_graph.hpp"

namespace remat::detail {

/// \file
/// Elimination orders. To eliminate a vertex is to remove it and to make its neighbours a clique. The width of an order
/// is the largest number of neighbours that a vertex has when it is eliminated. The least width of any order is the
/// treewidth of the graph.

/// A greedy elimination order by a rule. Ties are broken at random by `seed`. When the vertices that are left cannot
/// make the order wider, they are appended as they are numbered.
///
/// O((vertices + fill) · largest degree + updates · log(vertices)) time. Up to 16,384 vertices a matrix of bits handles
/// 64 neighbours at a time and takes vertices²/8 bytes; larger graphs are kept as lists.
[[nodiscard]] std::vector<std::uint32_t> elimination_order(const undirected_graph& g,
                                                           elimination_rule rule = elimination_rule::min_fill,
                                                           std::uint64_t seed = 0);

/// Maximum cardinality search (Tarjan and Yannakakis \cite tarjan1984chordal): visits next a vertex with the most
/// visited neighbours. The order is that of the visits, reversed. In a chordal graph it adds no edge. O(vertices +
/// edges) time.
[[nodiscard]] std::vector<std::uint32_t> maximum_cardinality_order(const undirected_graph& g);

/// The width of an elimination order, without filling the graph: from the elimination tree and the leaves of its row
/// subtrees (Gilbert, Ng and Peyton \cite gilbert1994counts). If `width_at` is given, it becomes: position → number of
/// neighbours at its elimination.
/// O(vertices + edges · α) time. Precondition: `order` is a permutation of the vertices.
[[nodiscard]] std::uint32_t elimination_width(const undirected_graph& g, std::span<const std::uint32_t> order,
                                              std::vector<std::uint32_t>* width_at = nullptr);

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/treewidth/impl/elimination_order.hpp"
#endif
