// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/check.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace remat {

namespace detail::decomposition_checking {

/// Checks one decomposition; each member function checks one condition of the definition.
class checker {
 public:
  checker(const undirected_graph& g, const tree_decomposition& t) : graph_(g), tree_(t), holders_(g.num_vertices()) {}

  decomposition_report run() {
    check_bags();
    const bool tree = check_tree();
    check_cover();
    if (tree) check_connection();
    return std::move(report_);
  }

 private:
  void add(std::string violation) {
    if (report_.violations.size() < most_violations) report_.violations.push_back(std::move(violation));
  }

  /// The bags hold vertices, each once. Fills `holders_`.
  void check_bags() {
    for (std::uint32_t b = 0; b < tree_.size(); ++b) {
      const auto bag = tree_.bags[b];
      report_.width = std::max(report_.width, static_cast<std::int64_t>(bag.size()) - 1);
      for (std::size_t i = 0; i < bag.size(); ++i) {
        if (bag[i] >= graph_.num_vertices())
          add("bag " + std::to_string(b) + " holds " + std::to_string(bag[i]) + ", which is no vertex");
        else
          holders_[bag[i]].push_back(b);
        if (i > 0 && bag[i - 1] >= bag[i]) add("bag " + std::to_string(b) + " is not ascending");
      }
    }
  }

  /// The edges make a tree: one less than there are bags, and none closes a cycle.
  bool check_tree() {
    const std::size_t bags = tree_.size();
    std::vector<std::uint32_t> up(bags), size(bags, 1);
    for (std::uint32_t b = 0; b < bags; ++b) up[b] = b;
    const auto root = [&](std::uint32_t b) {
      while (up[b] != b) b = up[b];
      return b;
    };
    bool tree = tree_.edges.size() == (bags == 0 ? 0 : bags - 1);
    if (!tree)
      add("there are " + std::to_string(tree_.edges.size()) + " tree edges; " + std::to_string(bags) +
          " bags need one less");
    for (const auto& [a, b] : tree_.edges) {
      if (a >= bags || b >= bags) {
        add("a tree edge joins bags " + std::to_string(a) + " and " + std::to_string(b) + "; there are " +
            std::to_string(bags));
        tree = false;
        continue;
      }
      std::uint32_t x = root(a), y = root(b);
      if (x == y) {
        add("the tree edge between bags " + std::to_string(a) + " and " + std::to_string(b) + " closes a cycle");
        tree = false;
        continue;
      }
      if (size[x] > size[y]) std::swap(x, y);
      up[x] = y;
      size[y] += size[x];
    }
    return tree;
  }

  /// Every vertex is in a bag, and both ends of every edge are in one bag.
  void check_cover() {
    for (std::uint32_t v = 0; v < holders_.size(); ++v)
      if (holders_[v].empty()) add("vertex " + std::to_string(v) + " is in no bag");
    graph_.for_each_edge([&](std::uint32_t u, std::uint32_t v) {
      const bool u_has_fewer = holders_[u].size() < holders_[v].size();
      const auto &fewer = holders_[u_has_fewer ? u : v], &other = holders_[u_has_fewer ? v : u];
      const bool together = std::any_of(fewer.begin(), fewer.end(), [&](std::uint32_t b) {
        return std::binary_search(other.begin(), other.end(), b);
      });
      if (!together) add("edge (" + std::to_string(u) + ", " + std::to_string(v) + ") is in no bag");
    });
  }

  /// The bags of each vertex are connected. In a tree they are when the edges between two of them number one less than
  /// they do.
  void check_connection() {
    const std::size_t n = graph_.num_vertices();
    std::vector<std::size_t> edges(n, 0);
    std::vector<std::uint8_t> in_first(n, 0);
    for (const auto& [a, b] : tree_.edges) {
      for (const std::uint32_t v : tree_.bags[a])
        if (v < n) in_first[v] = 1;
      for (const std::uint32_t v : tree_.bags[b])
        if (v < n && in_first[v]) ++edges[v];
      for (const std::uint32_t v : tree_.bags[a])
        if (v < n) in_first[v] = 0;
    }
    for (std::uint32_t v = 0; v < n; ++v)
      if (!holders_[v].empty() && edges[v] + 1 != holders_[v].size())
        add("the bags of vertex " + std::to_string(v) + " are not connected in the tree");
  }

  static constexpr std::size_t most_violations = 10;

  const undirected_graph& graph_;
  const tree_decomposition& tree_;
  std::vector<std::vector<std::uint32_t>> holders_;  // vertex → the bags that hold it, ascending
  decomposition_report report_;
};

}  // namespace detail::decomposition_checking

REMAT_INLINE decomposition_report check_decomposition(const undirected_graph& g, const tree_decomposition& t) {
  return detail::decomposition_checking::checker(g, t).run();
}

}  // namespace remat
