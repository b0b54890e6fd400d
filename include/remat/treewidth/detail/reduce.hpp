// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "remat/treewidth/undirected_graph.hpp"

namespace remat::detail {

/// A graph from which some vertices have been eliminated, without a change of its treewidth.
struct reduced_graph {
  std::vector<std::uint32_t> eliminated;  ///< vertices of the whole graph, in the order of their elimination
  std::vector<std::uint32_t> vertices;    ///< vertex of `rest` → vertex of the whole graph, ascending
  undirected_graph rest{};                ///< the other vertices, with the edges that elimination added
  std::uint32_t lower_bound = 0;          ///< on the treewidth of the whole graph: the given one, or a better one

  /// An elimination order of the whole graph from one of `rest`. Its width is the larger of `lower_bound` and the width
  /// of the given order. O(vertices) time.
  [[nodiscard]] std::vector<std::uint32_t> lift(std::span<const std::uint32_t> order) const;
};

/// Eliminates vertices with which some order of least width begins, until the rules find no more: islets, twigs and all
/// simplicial vertices; also series and almost simplicial vertices, buddies and cubes, where the treewidth is at least
/// their degree (Bodlaender, Koster and van den Eijkhof \cite bodlaender2005preprocessing). The last `lower_bound` + 1
/// vertices are eliminated in any order.
///
/// `lower_bound` is a proven lower bound on the treewidth; a better one lets more vertices go. The treewidth of g is
/// the larger of the `lower_bound` that is returned and the treewidth of `rest`. `stop` is asked every fraction of a
/// millisecond. Once it answers true, the vertices eliminated so far are returned. O(sum over the vertices looked at of
/// degree² · log degree) time.
[[nodiscard]] reduced_graph reduce(const undirected_graph& g, std::uint32_t lower_bound = 0,
                                   const std::function<bool()>* stop = nullptr);

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/treewidth/impl/reduce.hpp"
#endif
