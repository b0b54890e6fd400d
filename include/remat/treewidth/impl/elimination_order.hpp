// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/detail/elimination_order.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/treewidth/detail/greedy_order.hpp"

namespace remat::detail {

namespace elimination_trees {

inline constexpr std::uint32_t none = undirected_graph::none;

/// The elimination tree: position → its parent's position, `none` for a root.
inline std::vector<std::uint32_t> parents(const undirected_graph& g, std::span<const std::uint32_t> order,
                                          std::span<const std::uint32_t> position) {
  const auto n = static_cast<std::uint32_t>(order.size());
  std::vector<std::uint32_t> parent(n, none), ancestor(n, none);
  for (std::uint32_t i = 0; i < n; ++i)
    for (const std::uint32_t u : g.neighbours(order[i])) {
      std::uint32_t r = position[u];
      if (r >= i) continue;
      while (ancestor[r] != none && ancestor[r] != i) r = std::exchange(ancestor[r], i);
      if (ancestor[r] == none) ancestor[r] = parent[r] = i;
    }
  return parent;
}

/// The nodes of a forest in postorder: children before their parents, each subtree in one piece.
inline std::vector<std::uint32_t> postorder(std::span<const std::uint32_t> parent) {
  const auto n = static_cast<std::uint32_t>(parent.size());
  std::vector<std::uint32_t> post;
  std::vector<std::uint32_t> first_child(n, none), sibling(n, none), stack;
  for (std::uint32_t i = n; i-- > 0;)
    if (parent[i] != none) {
      sibling[i] = first_child[parent[i]];
      first_child[parent[i]] = i;
    }
  post.reserve(n);
  for (std::uint32_t r = 0; r < n; ++r) {
    if (parent[r] != none) continue;
    stack.push_back(r);
    while (!stack.empty()) {
      const std::uint32_t v = stack.back();
      if (first_child[v] != none) {
        stack.push_back(first_child[v]);
        first_child[v] = none;
        continue;
      }
      stack.pop_back();
      post.push_back(v);
      if (!stack.empty() && parent[v] == stack.back()) first_child[stack.back()] = sibling[v];
    }
  }
  return post;
}

}  // namespace elimination_trees

REMAT_INLINE std::vector<std::uint32_t> elimination_order(const undirected_graph& g, elimination_rule rule,
                                                          std::uint64_t seed) {
  detail::eliminating::greedy_options options;
  options.rule = rule;
  options.seed = seed;
  return detail::eliminating::greedy_order(g, options);
}

REMAT_INLINE std::vector<std::uint32_t> maximum_cardinality_order(const undirected_graph& g) {
  const auto n = static_cast<std::uint32_t>(g.num_vertices());
  std::vector<std::uint32_t> count(n, 0), order(n);
  std::vector<std::vector<std::uint32_t>> buckets(1);
  for (std::uint32_t v = n; v-- > 0;) buckets[0].push_back(v);
  std::vector<std::uint8_t> visited(n, 0);
  std::size_t top = 0;
  for (std::uint32_t left = n; left > 0;) {
    while (buckets[top].empty()) --top;
    const std::uint32_t v = buckets[top].back();
    buckets[top].pop_back();
    if (visited[v] || count[v] != top) continue;
    visited[v] = 1;
    order[--left] = v;
    for (const std::uint32_t u : g.neighbours(v)) {
      if (visited[u]) continue;
      if (++count[u] >= buckets.size()) buckets.emplace_back();
      buckets[count[u]].push_back(u);
      top = std::max<std::size_t>(top, count[u]);
    }
  }
  return order;
}

REMAT_INLINE std::uint32_t elimination_width(const undirected_graph& g, std::span<const std::uint32_t> order,
                                             std::vector<std::uint32_t>* width_at) {
  using detail::elimination_trees::none;
  const auto n = static_cast<std::uint32_t>(g.num_vertices());
  std::vector<std::uint32_t> position(n);
  for (std::uint32_t i = 0; i < n; ++i) position[order[i]] = i;
  const std::vector<std::uint32_t> parent = detail::elimination_trees::parents(g, order, position);
  const std::vector<std::uint32_t> post = detail::elimination_trees::postorder(parent);
  std::vector<std::int64_t> count(n, 0);
  std::vector<std::uint32_t> first(n, none), last_leaf(n, none);
  for (std::uint32_t k = 0; k < n; ++k) {
    count[post[k]] = first[post[k]] == none ? 1 : 0;
    for (std::uint32_t v = post[k]; v != none && first[v] == none; v = parent[v]) first[v] = k;
  }
  std::vector<std::uint32_t> ancestor(n);
  for (std::uint32_t v = 0; v < n; ++v) ancestor[v] = v;
  const auto find = [&](std::uint32_t v) {
    while (ancestor[v] != v) v = ancestor[v] = ancestor[ancestor[v]];
    return v;
  };
  std::vector<std::uint32_t> last_first(n, none);  // row → the largest `first` of its columns so far
  for (std::uint32_t k = 0; k < n; ++k) {
    const std::uint32_t j = post[k];
    if (parent[j] != none) --count[parent[j]];
    for (const std::uint32_t u : g.neighbours(order[j])) {
      const std::uint32_t i = position[u];
      if (i <= j || (last_first[i] != none && first[j] <= last_first[i])) continue;
      last_first[i] = first[j];
      ++count[j];
      if (last_leaf[i] != none) --count[find(last_leaf[i])];
      last_leaf[i] = j;
    }
    if (parent[j] != none) ancestor[j] = parent[j];
  }
  std::int64_t width = 0;
  if (width_at != nullptr) width_at->assign(n, 0);
  for (std::uint32_t i = 0; i < n; ++i) {  // parents have larger positions
    if (parent[i] != none) count[parent[i]] += count[i];
    width = std::max(width, count[i] - 1);
    if (width_at != nullptr) (*width_at)[i] = static_cast<std::uint32_t>(count[i] - 1);
  }
  return static_cast<std::uint32_t>(width);
}

}  // namespace remat::detail
