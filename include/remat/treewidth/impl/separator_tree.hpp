// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/detail/separator_tree.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace remat::detail {

namespace separating {

/// Takes bags out of a tree decomposition, the most central first.
class builder {
 public:
  builder(const index_rows& neighbours, const index_rows& bags, const index_rows& links, std::span<const double> weight)
      : neighbours_(neighbours), bags_(bags), links_(links), weight_(weight) {
    const std::size_t n = neighbours.size();
    part_.assign(n, 0);
    home_.assign(n, separator_tree::none);
    inside_.assign(bags.size(), 0);
    heaviest_.assign(bags.size(), 0);
    below_.assign(bags.size(), 0);
    above_.assign(bags.size(), separator_tree::none);
    tree_.node_of.assign(n, separator_tree::none);
  }

  separator_tree build() {
    std::vector<std::uint32_t> all(neighbours_.size()), every(bags_.size());
    for (std::uint32_t v = 0; v < all.size(); ++v) all[v] = v;
    for (std::uint32_t b = 0; b < every.size(); ++b) every[b] = b;
    split(all, every, separator_tree::none, 1);
    while (!open_.empty()) {
      const part now = std::move(open_.back());
      open_.pop_back();
      const auto k = static_cast<std::uint32_t>(tree_.end.size());
      take(now.vertices, now.bags, k);
      tree_.end.push_back(k + 1);
      tree_.parent.push_back(now.parent);
      tree_.depth = std::max(tree_.depth, now.depth);
      split(now.vertices, now.bags, k, now.depth + 1);
    }
    for (std::size_t k = tree_.end.size(); k-- > 0;)
      if (tree_.parent[k] != separator_tree::none)
        tree_.end[tree_.parent[k]] = std::max(tree_.end[tree_.parent[k]], tree_.end[k]);
    return std::move(tree_);
  }

 private:
  /// A connected set of vertices without a node, and the bags that meet it.
  struct part {
    std::vector<std::uint32_t> vertices, bags;
    std::uint32_t parent, depth;
  };

  /// Opens a part for each connected component of those `vertices` that have no node yet. `bags`: all that meet them.
  void split(const std::vector<std::uint32_t>& vertices, const std::vector<std::uint32_t>& bags, std::uint32_t parent,
             std::uint32_t depth) {
    const std::size_t first = open_.size();
    const std::uint32_t base = parts_;
    for (const std::uint32_t v : vertices) {
      if (tree_.node_of[v] != separator_tree::none || part_[v] > base) continue;
      part now;
      now.parent = parent;
      now.depth = depth;
      now.vertices.push_back(v);
      part_[v] = ++parts_;
      for (std::size_t i = 0; i < now.vertices.size(); ++i)
        for (const std::uint32_t u : neighbours_[now.vertices[i]])
          if (tree_.node_of[u] == separator_tree::none && part_[u] <= base) {
            part_[u] = parts_;
            now.vertices.push_back(u);
          }
      std::sort(now.vertices.begin(), now.vertices.end());
      open_.push_back(std::move(now));
    }
    for (const std::uint32_t b : bags) {
      std::uint32_t last = 0;
      for (const std::uint32_t v : bags_[b]) {
        if (tree_.node_of[v] != separator_tree::none || part_[v] <= base || part_[v] == last) continue;
        last = part_[v];
        std::vector<std::uint32_t>& list = open_[first + (last - base - 1)].bags;
        if (list.empty() || list.back() != b) list.push_back(b);
      }
    }
    // The first part leaves the stack first.
    std::reverse(open_.begin() + static_cast<std::ptrdiff_t>(first), open_.end());
  }

  /// Gives node k the vertices of the bag whose removal leaves the lightest heaviest part.
  void take(const std::vector<std::uint32_t>& vertices, const std::vector<std::uint32_t>& bags, std::uint32_t k) {
    const std::uint32_t chosen = bags.size() == 1 ? bags[0] : centre(vertices, bags);
    row_.clear();
    for (const std::uint32_t v : bags_[chosen])
      if (tree_.node_of[v] == separator_tree::none && part_[v] == part_[vertices[0]]) row_.push_back(v);
    if (row_.empty()) throw internal_error("the chosen bag separates no vertex of the part");
    std::sort(row_.begin(), row_.end());
    for (const std::uint32_t v : row_) {
      tree_.node_of[v] = k;
      tree_.vertices.values.push_back(v);
    }
    tree_.vertices.end_row();
  }

  /// The bag whose removal from the part leaves the lightest heaviest component.
  std::uint32_t centre(const std::vector<std::uint32_t>& vertices, const std::vector<std::uint32_t>& bags) {
    const double total = weigh_subtrees(vertices, bags);
    std::uint32_t best = bags[0];
    double least = std::numeric_limits<double>::infinity();
    for (const std::uint32_t b : order_) {
      double over = total - below_[b];  // weight above the bag, without the bag's own vertices
      double own = 0;
      bool meets = false;
      for (const std::uint32_t v : bags_[b]) {
        if (tree_.node_of[v] != separator_tree::none || part_[v] != part_[vertices[0]]) continue;
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

  /// Roots the subtree of the bags that meet a part, and fills `order_` (parents first), `above_`, `below_` (weight of
  /// a bag's subtree) and `heaviest_` (of its children's subtrees). Returns the weight of the part.
  double weigh_subtrees(const std::vector<std::uint32_t>& vertices, const std::vector<std::uint32_t>& bags) {
    ++stamp_;
    for (const std::uint32_t b : bags) {
      inside_[b] = stamp_;
      below_[b] = 0;
      heaviest_[b] = 0;
    }
    order_.assign(1, bags[0]);
    above_[bags[0]] = separator_tree::none;
    for (std::size_t i = 0; i < order_.size(); ++i)
      for (const std::uint32_t b : links_[order_[i]])
        if (inside_[b] == stamp_ && b != above_[order_[i]]) {
          above_[b] = order_[i];
          order_.push_back(b);
        }
    // The weight of a vertex counts for the first bag, in this order, that holds it: its home.
    double total = 0;
    const std::uint32_t homeless = separator_tree::none - 1;
    for (const std::uint32_t v : vertices) {
      home_[v] = homeless;
      total += weight_[v];
    }
    for (const std::uint32_t b : order_)
      for (const std::uint32_t v : bags_[b])
        if (home_[v] == homeless && tree_.node_of[v] == separator_tree::none) {
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

  const index_rows& neighbours_;
  const index_rows& bags_;
  const index_rows& links_;
  std::span<const double> weight_;
  separator_tree tree_;
  std::vector<part> open_;
  std::vector<std::uint32_t> part_, home_, inside_, above_, order_, row_;
  std::vector<double> heaviest_, below_;
  std::uint32_t parts_ = 0, stamp_ = 0;
};

}  // namespace separating

REMAT_INLINE separator_tree separate(const index_rows& neighbours, const index_rows& bags, const index_rows& links,
                                     std::span<const double> weight) {
  return detail::separating::builder(neighbours, bags, links, weight).build();
}

}  // namespace remat::detail
