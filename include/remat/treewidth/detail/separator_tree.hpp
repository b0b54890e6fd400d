// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/treewidth/detail/subgraph.hpp"

namespace REMAT_NAMESPACE::detail {

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

/// Takes bags out of a tree decomposition, the most central first.
class separator_tree_builder {
 public:
  separator_tree_builder(const index_rows& neighbours, const index_rows& bags, const index_rows& links,
                         std::span<const double> weight)
      : neighbours_(neighbours),
        bags_(bags),
        links_(links),
        weight_(weight),
        component_(neighbours.size(), 0),
        home_(neighbours.size(), none),
        inside_(bags.size(), 0),
        above_(bags.size(), none),
        heaviest_(bags.size(), 0),
        below_(bags.size(), 0) {
    tree_.node_of.assign(neighbours.size(), none);
  }

  separator_tree build() {
    std::vector<std::uint32_t> vertices(neighbours_.size()), bags(bags_.size());
    std::iota(vertices.begin(), vertices.end(), 0U);
    std::iota(bags.begin(), bags.end(), 0U);
    split(vertices, bags, none, 1);
    while (!open_.empty()) {
      const component now = std::move(open_.back());
      open_.pop_back();
      const auto k = static_cast<std::uint32_t>(tree_.size());
      take(now, k);
      tree_.end.push_back(k + 1);
      tree_.parent.push_back(now.parent);
      tree_.depth = std::max(tree_.depth, now.depth);
      split(now.vertices, now.bags, k, now.depth + 1);
    }
    for (std::size_t k = tree_.size(); k-- > 0;)
      if (tree_.parent[k] != none) tree_.end[tree_.parent[k]] = std::max(tree_.end[tree_.parent[k]], tree_.end[k]);
    return std::move(tree_);
  }

 private:
  static constexpr std::uint32_t none = separator_tree::none;

  /// A connected set of vertices without a node, and the bags that meet it.
  struct component {
    std::vector<std::uint32_t> vertices, bags;
    std::uint32_t parent, depth;
  };

  /// Opens a component for each connected component of those `vertices` that have no node yet. `bags`: all that meet
  /// them.
  void split(const std::vector<std::uint32_t>& vertices, const std::vector<std::uint32_t>& bags, std::uint32_t parent,
             std::uint32_t depth) {
    const std::size_t first = open_.size();
    const std::uint32_t base = components_;
    const auto enter = [&](std::uint32_t v) {
      if (tree_.node_of[v] != none || component_[v] > base) return false;
      component_[v] = components_ + 1;
      return true;
    };
    for (const std::uint32_t v : vertices) {
      if (!enter(v)) continue;
      component now{{v}, {}, parent, depth};
      extend_reach(neighbours_, now.vertices, enter);
      std::sort(now.vertices.begin(), now.vertices.end());
      open_.push_back(std::move(now));
      ++components_;
    }
    for (const std::uint32_t b : bags) {
      std::uint32_t last = 0;
      for (const std::uint32_t v : bags_[b]) {
        if (tree_.node_of[v] != none || component_[v] <= base || component_[v] == last) continue;
        last = component_[v];
        std::vector<std::uint32_t>& list = open_[first + (last - base - 1)].bags;
        if (list.empty() || list.back() != b) list.push_back(b);
      }
    }
    // The first component leaves the stack first.
    std::reverse(open_.begin() + static_cast<std::ptrdiff_t>(first), open_.end());
  }

  /// True when v is a vertex of the component that has no node yet.
  [[nodiscard]] bool is_open(std::uint32_t v, const component& c) const {
    return tree_.node_of[v] == none && component_[v] == component_[c.vertices[0]];
  }

  /// Gives node k the vertices of the bag whose removal leaves the lightest heaviest component.
  void take(const component& now, std::uint32_t k) {
    const std::uint32_t chosen = now.bags.size() == 1 ? now.bags[0] : centre(now);
    for (const std::uint32_t v : bags_[chosen]) {
      if (!is_open(v, now)) continue;
      tree_.node_of[v] = k;
      tree_.vertices.values.push_back(v);
    }
    tree_.vertices.end_row();
    if (tree_.vertices[k].empty()) throw internal_error("the chosen bag separates no vertex of the component");
  }

  /// The bag whose removal leaves the lightest heaviest component.
  std::uint32_t centre(const component& now) {
    const double total = weigh_subtrees(now);
    std::uint32_t best = now.bags[0];
    double least = std::numeric_limits<double>::infinity();
    for (const std::uint32_t b : order_) {
      double over = total - below_[b];  // weight above the bag, without the bag's own vertices
      double own = 0;
      bool meets = false;
      for (const std::uint32_t v : bags_[b]) {
        if (!is_open(v, now)) continue;
        meets = true;
        own += weight_[v];
        if (home_[v] != b) over -= weight_[v];
      }
      if (!meets) continue;
      const double worst = std::max(over, heaviest_[b]) + 1e-3 * own;
      if (worst < least) {
        least = worst;
        best = b;
      }
    }
    return best;
  }

  /// Roots the subtree of the bags that meet a component, and fills `order_` (parents first), `above_`, `below_`
  /// (weight of a bag's subtree) and `heaviest_` (of its children's subtrees). Returns the weight of the component.
  double weigh_subtrees(const component& now) {
    ++stamp_;
    for (const std::uint32_t b : now.bags) {
      inside_[b] = stamp_;
      below_[b] = 0;
      heaviest_[b] = 0;
    }
    order_.assign(1, now.bags[0]);
    above_[now.bags[0]] = none;
    for (std::size_t i = 0; i < order_.size(); ++i)
      for (const std::uint32_t b : links_[order_[i]])
        if (inside_[b] == stamp_ && b != above_[order_[i]]) {
          above_[b] = order_[i];
          order_.push_back(b);
        }
    // The weight of a vertex counts for the first bag, in this order, that holds it: its home.
    double total = 0;
    constexpr std::uint32_t homeless = none - 1;
    for (const std::uint32_t v : now.vertices) {
      home_[v] = homeless;
      total += weight_[v];
    }
    for (const std::uint32_t b : order_)
      for (const std::uint32_t v : bags_[b])
        if (home_[v] == homeless && tree_.node_of[v] == none) {
          home_[v] = b;
          below_[b] += weight_[v];
        }
    for (std::size_t i = order_.size(); i-- > 1;) {
      const std::uint32_t b = order_[i], up = above_[b];
      below_[up] += below_[b];
      heaviest_[up] = std::max(heaviest_[up], below_[b]);
    }
    return total;
  }

  const index_rows &neighbours_, &bags_, &links_;
  std::span<const double> weight_;
  separator_tree tree_;
  std::vector<component> open_;
  std::vector<std::uint32_t> component_;  // vertex → the last component that it was in, counted from 1
  std::vector<std::uint32_t> home_, inside_, above_, order_;
  std::vector<double> heaviest_, below_;
  std::uint32_t components_ = 0, stamp_ = 0;
};

/// Nested separators from a tree decomposition: takes out the bag that leaves the lightest heaviest component, then
/// does the same in each component, down to single bags (Kumar et al. \cite kumar2019twremat, section 3). Differs from
/// the paper: it balances weights in place of numbers of bags, and splits into connected components.
///
/// `neighbours`: vertex → its neighbours; `bags`: bag → its vertices, ascending; `links`: bag → the bags beside it in
/// the tree; `weight`: vertex → its weight, not negative. Precondition: a valid tree decomposition of the graph.
/// O((vertices + edges + sum of bag sizes) · depth) time. The depth is logarithmic in the weight if bags allow it.
[[nodiscard]] inline separator_tree separate(const index_rows& neighbours, const index_rows& bags,
                                             const index_rows& links, std::span<const double> weight) {
  return separator_tree_builder(neighbours, bags, links, weight).build();
}

}  // namespace REMAT_NAMESPACE::detail
