// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/tree_decomposition.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "remat/core/error.hpp"
#include "remat/core/linkage.hpp"

namespace remat {

namespace detail::tree_decomposing {

inline void require_permutation(std::size_t n, std::span<const std::uint32_t> order) {
  std::vector<std::uint8_t> seen(n, 0);
  if (order.size() != n)
    throw bad_argument("the elimination order has " + std::to_string(order.size()) + " vertices; the graph has " +
                       std::to_string(n));
  for (const std::uint32_t v : order) {
    if (v >= n || seen[v])
      throw bad_argument("vertex " + std::to_string(v) + " of the elimination order " +
                         (v >= n ? "is no vertex of the graph" : "appears twice"));
    seen[v] = 1;
  }
}

}  // namespace detail::tree_decomposing

REMAT_INLINE void connect_bags(tree_decomposition& t) {
  std::vector<std::uint32_t> up(t.size());
  for (std::uint32_t b = 0; b < up.size(); ++b) up[b] = b;
  const auto root = [&](std::uint32_t b) {
    while (up[b] != b) b = up[b] = up[up[b]];
    return b;
  };
  for (const auto& [a, b] : t.edges) up[root(a)] = root(b);
  for (std::uint32_t b = 1; b < up.size(); ++b)
    if (root(b) != root(0)) {
      up[root(b)] = root(0);
      t.edges.emplace_back(0, b);
    }
}

REMAT_INLINE tree_decomposition decomposition_of(const undirected_graph& g, std::span<const std::uint32_t> order,
                                                 std::size_t clique_from) {
  constexpr std::uint32_t none = undirected_graph::none;
  const std::size_t n = g.num_vertices();
  detail::tree_decomposing::require_permutation(n, order);
  std::vector<std::uint32_t> position(n), bag_of(n, none), above(n, none);
  for (std::uint32_t i = 0; i < n; ++i) position[order[i]] = i;
  // Position → the later positions of its neighbours in the filled graph, until its parent has taken them over.
  std::vector<std::vector<std::uint32_t>> later(n), children(n);
  std::vector<std::uint32_t> mark(n, none);
  tree_decomposition out;
  // Bags hold positions here; `bag_of[i]` is the bag of position i.
  std::vector<std::vector<std::uint32_t>> bags;
  const auto last = static_cast<std::uint32_t>(std::min(clique_from, n));  // stands for all from here on
  for (std::uint32_t i = 0; i < n && i <= last; ++i) {
    std::vector<std::uint32_t>& row = later[i];
    mark[i] = i;
    for (const std::uint32_t u : g.neighbours(order[i]))
      if (const std::uint32_t p = position[u]; p > i && mark[p] != i) {
        mark[p] = i;
        row.push_back(p);
      }
    for (std::uint32_t p = i + 1; i == last && p < n; ++p)
      if (mark[p] != i) {
        mark[p] = i;
        row.push_back(p);
      }
    std::uint32_t widest = none;
    std::size_t most = 0;
    for (const std::uint32_t c : children[i]) {
      if (later[c].size() > most) {
        most = later[c].size();
        widest = c;
      }
      for (const std::uint32_t p : later[c])
        if (mark[p] != i) {
          mark[p] = i;
          row.push_back(p);
        }
    }
    // A bag no larger than the later neighbours of a child is a subset of the child's bag.
    if (widest != none && most == row.size() + 1) {
      bag_of[i] = bag_of[widest];
    } else {
      bag_of[i] = static_cast<std::uint32_t>(bags.size());
      std::vector<std::uint32_t> bag(row);
      bag.push_back(i);
      bags.push_back(std::move(bag));
    }
    for (const std::uint32_t c : children[i]) {
      if (bag_of[c] != bag_of[i]) out.edges.emplace_back(bag_of[c], bag_of[i]);
      later[c] = {};
    }
    children[i] = {};
    if (!row.empty()) {
      const std::uint32_t parent = *std::min_element(row.begin(), row.end());
      children[std::min(parent, last)].push_back(i);
    } else {
      later[i] = {};
    }
  }
  for (std::vector<std::uint32_t>& bag : bags) {
    for (std::uint32_t& p : bag) p = order[p];
    std::sort(bag.begin(), bag.end());
    out.bags.values.insert(out.bags.values.end(), bag.begin(), bag.end());
    out.bags.end_row();
    bag = {};
  }
  connect_bags(out);
  return out;
}

REMAT_INLINE std::vector<std::uint32_t> elimination_order_of(const tree_decomposition& t, std::size_t n) {
  const index_rows links = t.links();
  std::vector<std::uint32_t> holders(n, 0), left(t.size()), leaves, order;
  std::vector<std::uint8_t> gone(t.size(), 0);
  order.reserve(n);
  for (const std::uint32_t v : t.bags.values) ++holders[v];
  for (std::uint32_t b = 0; b < t.size(); ++b) {
    left[b] = static_cast<std::uint32_t>(links[b].size());
    if (left[b] <= 1) leaves.push_back(b);
  }
  while (!leaves.empty()) {
    const std::uint32_t b = leaves.back();
    leaves.pop_back();
    if (gone[b]) continue;
    gone[b] = 1;
    for (const std::uint32_t v : t.bags[b])
      if (--holders[v] == 0) order.push_back(v);
    for (const std::uint32_t c : links[b])
      if (!gone[c] && --left[c] <= 1) leaves.push_back(c);
  }
  return order;
}

REMAT_INLINE tree_decomposition without_subsets(const tree_decomposition& t) {
  const index_rows links = t.links();
  std::vector<std::uint32_t> into(t.size());
  for (std::uint32_t b = 0; b < into.size(); ++b) into[b] = b;
  const auto root = [&](std::uint32_t b) {
    while (into[b] != b) b = into[b] = into[into[b]];
    return b;
  };
  const auto within = [&](std::uint32_t a, std::uint32_t b) {
    const auto x = t.bags[a], y = t.bags[b];
    return x.size() <= y.size() && std::includes(y.begin(), y.end(), x.begin(), x.end());
  };
  for (const auto& [first, second] : t.edges) {
    const std::uint32_t a = root(first), b = root(second);
    if (a == b) continue;
    if (within(a, b))
      into[a] = b;
    else if (within(b, a))
      into[b] = a;
  }
  tree_decomposition out;
  std::vector<std::uint32_t> number(t.size(), undirected_graph::none);
  for (std::uint32_t b = 0; b < t.size(); ++b) {
    if (into[b] != b) continue;
    number[b] = static_cast<std::uint32_t>(out.bags.size());
    out.bags.values.insert(out.bags.values.end(), t.bags[b].begin(), t.bags[b].end());
    out.bags.end_row();
  }
  for (const auto& [first, second] : t.edges) {
    const std::uint32_t a = root(first), b = root(second);
    if (a != b) out.edges.emplace_back(number[a], number[b]);
  }
  return out;
}

}  // namespace remat
