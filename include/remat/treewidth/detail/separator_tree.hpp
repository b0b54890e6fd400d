// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "remat/core/index_rows.hpp"

namespace remat::detail {

/// Nested separators of an undirected graph. Every vertex belongs to one node of a rooted tree. Taking out the vertices
/// of a node separates the subtrees below it: no edge joins two of them.
///
/// Nodes are numbered in preorder. The subtree of node k is the nodes k … `end[k]` − 1.
struct separator_tree {
  index_rows vertices;                 ///< node → its vertices, ascending
  std::vector<std::uint32_t> end;      ///< node → one past the last node of its subtree
  std::vector<std::uint32_t> parent;   ///< node → its parent; `none` for a root
  std::vector<std::uint32_t> node_of;  ///< vertex → its node
  std::uint32_t depth = 0;             ///< nodes on the longest path from a root to a leaf

  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();  ///< stands for "no node"

  /// The number of nodes.
  [[nodiscard]] std::size_t size() const noexcept { return end.size(); }
  /// True when node `below` is in the subtree of node `k`.
  [[nodiscard]] bool contains(std::uint32_t k, std::uint32_t below) const noexcept {
    return below >= k && below < end[k];
  }
};

/// Nested separators from a tree decomposition: takes out the bag that leaves the lightest heaviest component, then
/// does the same in each component, down to single bags (Kumar et al. \cite kumar2019twremat, section 3). Differs from
/// the paper: it balances weights in place of numbers of bags, and splits parts into connected components.
///
/// `neighbours`: vertex → its neighbours; `bags`: bag → its vertices; `links`: bag → the bags beside it in the tree;
/// `weight`: vertex → its weight, not negative. Precondition: a valid tree decomposition of the graph.
/// O((vertices + edges + sum of bag sizes) · depth) time. The depth is logarithmic in the weight where bags allow it.
[[nodiscard]] separator_tree separate(const index_rows& neighbours, const index_rows& bags, const index_rows& links,
                                      std::span<const double> weight);

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/treewidth/impl/separator_tree.hpp"
#endif
