// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/tree_decomposition.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

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

/// Eliminates the vertices of a graph in an order, and collects the bags. Bags hold positions in the order.
class eliminator {
 public:
  /// Vertices from position `clique_from` on go into one bag.
  eliminator(const undirected_graph& g, std::span<const std::uint32_t> order, std::size_t clique_from)
      : graph_(g),
        order_(order),
        n_(g.num_vertices()),
        last_(static_cast<std::uint32_t>(std::min(clique_from, n_))),
        position_(n_),
        bag_of_(n_, none),
        mark_(n_, none),
        later_(n_),
        children_(n_) {
    for (std::uint32_t i = 0; i < n_; ++i) position_[order[i]] = i;
  }

  tree_decomposition run() {
    for (std::uint32_t i = 0; i < n_ && i <= last_; ++i) {
      const std::uint32_t widest = find_later(i);
      choose_bag(i, widest);
      join_children(i);
    }
    store_bags();
    connect_bags(out_);
    return std::move(out_);
  }

 private:
  static constexpr std::uint32_t none = undirected_graph::none;

  /// Finds the later neighbours of position i: those of the graph, and those of its children. Returns the child with
  /// most later neighbours, or none.
  std::uint32_t find_later(std::uint32_t i) {
    std::vector<std::uint32_t>& row = later_[i];
    const auto add = [&](std::uint32_t p) {
      if (mark_[p] == i) return;
      mark_[p] = i;
      row.push_back(p);
    };
    mark_[i] = i;
    for (const std::uint32_t u : graph_.neighbours(order_[i]))
      if (position_[u] > i) add(position_[u]);
    if (i == last_)
      for (std::uint32_t p = i + 1; p < n_; ++p) add(p);
    std::uint32_t widest = none;
    std::size_t most = 0;
    for (const std::uint32_t c : children_[i]) {
      if (later_[c].size() > most) {
        most = later_[c].size();
        widest = c;
      }
      for (const std::uint32_t p : later_[c]) add(p);
    }
    return widest;
  }

  /// Makes a bag of position i and its later neighbours. If they are no more than the later neighbours of the child
  /// `widest`, they are a subset of that child's bag, which then stands for both.
  void choose_bag(std::uint32_t i, std::uint32_t widest) {
    if (widest != none && later_[widest].size() == later_[i].size() + 1) {
      bag_of_[i] = bag_of_[widest];
      return;
    }
    bag_of_[i] = static_cast<std::uint32_t>(bags_.size());
    std::vector<std::uint32_t> bag(later_[i]);
    bag.push_back(i);
    bags_.push_back(std::move(bag));
  }

  /// Joins the bags of the children to that of position i, and makes i a child of its first later neighbour.
  void join_children(std::uint32_t i) {
    for (const std::uint32_t c : children_[i]) {
      if (bag_of_[c] != bag_of_[i]) out_.edges.emplace_back(bag_of_[c], bag_of_[i]);
      later_[c] = {};
    }
    children_[i] = {};
    if (later_[i].empty()) {
      later_[i] = {};
      return;
    }
    const std::uint32_t parent = *std::min_element(later_[i].begin(), later_[i].end());
    children_[std::min(parent, last_)].push_back(i);
  }

  void store_bags() {
    for (std::vector<std::uint32_t>& bag : bags_) {
      for (std::uint32_t& p : bag) p = order_[p];
      std::sort(bag.begin(), bag.end());
      out_.bags.values.insert(out_.bags.values.end(), bag.begin(), bag.end());
      out_.bags.end_row();
      bag = {};
    }
  }

  const undirected_graph& graph_;
  std::span<const std::uint32_t> order_;
  std::size_t n_;
  std::uint32_t last_;  // this position stands for all from here on
  std::vector<std::uint32_t> position_, bag_of_, mark_;
  // Position → the later positions of its neighbours in the filled graph, until its parent has taken them over.
  std::vector<std::vector<std::uint32_t>> later_;
  std::vector<std::vector<std::uint32_t>> children_, bags_;
  tree_decomposition out_;
};

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
  detail::tree_decomposing::require_permutation(g.num_vertices(), order);
  return detail::tree_decomposing::eliminator(g, order, clique_from).run();
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
