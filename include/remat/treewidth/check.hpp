// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "remat/treewidth/tree_decomposition.hpp"
#include "remat/treewidth/undirected_graph.hpp"

namespace remat {

/// What `check_decomposition` found.
struct decomposition_report {
  std::vector<std::string> violations;  ///< at most ten, in words; vertices and bags counted from 0
  std::int64_t width = -1;              ///< largest bag less one

  [[nodiscard]] bool valid() const noexcept { return violations.empty(); }
};

/// Whether `t` is a tree decomposition of `g`, from the definition alone: the bags hold vertices, each once; the edges
/// make a tree; every vertex is in a bag; both ends of every edge are together in one; the bags of a vertex are
/// connected in the tree. It shares nothing with what makes decompositions.
///
/// A graph without vertices has the decomposition without bags. Never throws for a wrong decomposition.
/// O(sum of bag sizes + sum over the graph's edges of the bags that hold one end · log) time.
[[nodiscard]] inline decomposition_report check_decomposition(const undirected_graph& g, const tree_decomposition& t) {
  decomposition_report out;
  const auto say = [&](std::string text) {
    if (out.violations.size() < 10) out.violations.push_back(std::move(text));
  };
  const std::size_t n = g.num_vertices(), bags = t.bags.size();
  std::vector<std::vector<std::uint32_t>> holders(n);
  for (std::uint32_t b = 0; b < bags; ++b) {
    const auto bag = t.bags[b];
    out.width = std::max(out.width, static_cast<std::int64_t>(bag.size()) - 1);
    for (std::size_t i = 0; i < bag.size(); ++i) {
      if (bag[i] >= n)
        say("bag " + std::to_string(b) + " holds " + std::to_string(bag[i]) + ", which is no vertex");
      else
        holders[bag[i]].push_back(b);
      if (i > 0 && bag[i - 1] >= bag[i]) say("bag " + std::to_string(b) + " is not ascending");
    }
  }

  // A tree: one edge less than bags, and no edge closes a circle.
  std::vector<std::uint32_t> up(bags);
  for (std::uint32_t b = 0; b < bags; ++b) up[b] = b;
  const auto root = [&](std::uint32_t b) {
    while (up[b] != b) b = up[b];
    return b;
  };
  bool tree = bags == 0 ? t.edges.empty() : t.edges.size() == bags - 1;
  if (!tree)
    say("there are " + std::to_string(t.edges.size()) + " tree edges; " + std::to_string(bags) + " bags need one less");
  std::vector<std::uint32_t> size(bags, 1);
  for (const auto& [a, b] : t.edges) {
    if (a >= bags || b >= bags) {
      say("a tree edge joins bags " + std::to_string(a) + " and " + std::to_string(b) + "; there are " +
          std::to_string(bags));
      tree = false;
      continue;
    }
    std::uint32_t x = root(a), y = root(b);
    if (x == y) {
      say("the tree edge between bags " + std::to_string(a) + " and " + std::to_string(b) + " closes a circle");
      tree = false;
      continue;
    }
    if (size[x] > size[y]) std::swap(x, y);
    up[x] = y;
    size[y] += size[x];
  }

  for (std::uint32_t v = 0; v < n; ++v)
    if (holders[v].empty()) say("vertex " + std::to_string(v) + " is in no bag");
  for (std::uint32_t u = 0; u < n; ++u)
    for (const std::uint32_t v : g.neighbours(u)) {
      if (v < u) continue;
      const std::uint32_t few = holders[u].size() < holders[v].size() ? u : v, other = few == u ? v : u;
      const bool together = std::any_of(holders[few].begin(), holders[few].end(), [&](std::uint32_t b) {
        return std::binary_search(holders[other].begin(), holders[other].end(), b);
      });
      if (!together) say("edge (" + std::to_string(u) + ", " + std::to_string(v) + ") is in no bag");
    }
  // In a tree the bags of a vertex are connected when the edges between two of them are one less than they.
  if (tree) {
    std::vector<std::size_t> joints(n, 0);
    std::vector<std::uint32_t> mark(n, 0), common;
    for (const auto& [a, b] : t.edges) {
      for (const std::uint32_t v : t.bags[a])
        if (v < n) mark[v] = 1;
      for (const std::uint32_t v : t.bags[b])
        if (v < n && mark[v]) ++joints[v];
      for (const std::uint32_t v : t.bags[a])
        if (v < n) mark[v] = 0;
    }
    for (std::uint32_t v = 0; v < n; ++v)
      if (!holders[v].empty() && joints[v] + 1 != holders[v].size())
        say("the bags of vertex " + std::to_string(v) + " are not connected in the tree");
  }
  return out;
}

}  // namespace remat
