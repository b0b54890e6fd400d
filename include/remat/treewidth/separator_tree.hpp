// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/problem/problem.hpp"

namespace remat {

/// Nested separators of an undirected graph: every vertex belongs to one node of a tree; taking a node's vertices out
/// leaves the parts below it, which no edge joins.
///
/// Nodes are numbered in preorder, so the nodes below node k, itself included, are k … `end[k]` − 1, and a part below k
/// is one of its children with everything below that.
struct separator_tree {
  index_rows vertices;                 ///< node → its vertices, ascending
  std::vector<std::uint32_t> end;      ///< node → one past the last node below it
  std::vector<std::uint32_t> parent;   ///< node → the node above it; of roots: none
  std::vector<std::uint32_t> node_of;  ///< vertex → its node
  std::uint32_t depth = 0;             ///< nodes on the longest way down

  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  [[nodiscard]] std::size_t size() const noexcept { return end.size(); }
  /// Node `below` lies below node `k`, or is it.
  [[nodiscard]] bool contains(std::uint32_t k, std::uint32_t below) const noexcept {
    return below >= k && below < end[k];
  }
};

namespace detail::separating {

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
    const std::size_t n = neighbours_.size();
    // A part is a connected set of vertices and the bags that meet it.
    struct part {
      std::vector<std::uint32_t> vertices, bags;
      std::uint32_t parent, depth;
    };
    std::vector<part> left;
    const auto split = [&](const std::vector<std::uint32_t>& vertices, const std::vector<std::uint32_t>& bags,
                           std::uint32_t parent, std::uint32_t depth) {
      // Of `vertices`, those that are still without a node, by connected component.
      const std::size_t first = left.size();
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
        left.push_back(std::move(now));
      }
      for (const std::uint32_t b : bags) {
        std::uint32_t last = 0;
        for (const std::uint32_t v : bags_[b]) {
          if (tree_.node_of[v] != separator_tree::none || part_[v] <= base || part_[v] == last) continue;
          last = part_[v];
          std::vector<std::uint32_t>& list = left[first + (last - base - 1)].bags;
          if (list.empty() || list.back() != b) list.push_back(b);
        }
      }
      // The first part comes out of the stack first.
      std::reverse(left.begin() + static_cast<std::ptrdiff_t>(first), left.end());
    };

    std::vector<std::uint32_t> all(n), every(bags_.size());
    for (std::uint32_t v = 0; v < n; ++v) all[v] = v;
    for (std::uint32_t b = 0; b < every.size(); ++b) every[b] = b;
    split(all, every, separator_tree::none, 1);
    while (!left.empty()) {
      const part now = std::move(left.back());
      left.pop_back();
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
  /// Gives node k the vertices of the bag whose removal leaves the lightest heaviest part.
  void take(const std::vector<std::uint32_t>& vertices, const std::vector<std::uint32_t>& bags, std::uint32_t k) {
    const std::uint32_t chosen = bags.size() == 1 ? bags[0] : centre(vertices, bags);
    row_.clear();
    for (const std::uint32_t v : bags_[chosen])
      if (tree_.node_of[v] == separator_tree::none && part_[v] == part_[vertices[0]]) row_.push_back(v);
    if (row_.empty()) throw internal_error("a bag that separates nothing was chosen");
    std::sort(row_.begin(), row_.end());
    for (const std::uint32_t v : row_) {
      tree_.node_of[v] = k;
      tree_.vertices.values.push_back(v);
    }
    tree_.vertices.end_row();
  }

  std::uint32_t centre(const std::vector<std::uint32_t>& vertices, const std::vector<std::uint32_t>& bags) {
    // The bags that meet a connected part are a subtree of the decomposition.
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
    // A vertex counts for the first bag, in this order, that holds it.
    double total = 0;
    const std::uint32_t mark = separator_tree::none - 1;
    for (const std::uint32_t v : vertices) {
      home_[v] = mark;
      total += weight_[v];
    }
    for (const std::uint32_t b : order_)
      for (const std::uint32_t v : bags_[b])
        if (home_[v] == mark && tree_.node_of[v] == separator_tree::none) {
          home_[v] = b;
          below_[b] += weight_[v];
        }
    for (std::size_t i = order_.size(); i-- > 1;) {
      const std::uint32_t b = order_[i], up = above_[b];
      below_[up] += below_[b];
      heaviest_[up] = std::max(heaviest_[up], below_[b]);
    }
    std::uint32_t best = bags[0];
    double least = std::numeric_limits<double>::infinity();
    for (const std::uint32_t b : order_) {
      double over = total - below_[b];  // what lies above it, without its own vertices
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

  const index_rows& neighbours_;
  const index_rows& bags_;
  const index_rows& links_;
  std::span<const double> weight_;
  separator_tree tree_;
  std::vector<std::uint32_t> part_, home_, inside_, above_, order_, row_;
  std::vector<double> heaviest_, below_;
  std::uint32_t parts_ = 0, stamp_ = 0;
};

}  // namespace detail::separating

/// Nested separators from a tree decomposition: the bag that leaves the lightest heaviest part, then the same in each
/// connected part that is left, down to single bags (Kumar et al. \cite kumar2019twremat, section 3, balance by bags;
/// here by `weight`, and parts are taken apart into connected ones).
///
/// `neighbours`: vertex → its neighbours; `bags`: bag → its vertices; `links`: bag → the bags that it is joined to in
/// the tree; `weight`: of each vertex, not negative. Precondition: a valid tree decomposition of the graph.
/// O((vertices + edges + sum of bag sizes) × depth) time; the depth is logarithmic in the weight where bags allow it.
[[nodiscard]] inline separator_tree separate(const index_rows& neighbours, const index_rows& bags,
                                             const index_rows& links, std::span<const double> weight) {
  return detail::separating::builder(neighbours, bags, links, weight).build();
}

}  // namespace remat
