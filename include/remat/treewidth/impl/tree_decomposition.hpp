// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/tree_decomposition.hpp"

#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/words.hpp"

namespace REMAT_NAMESPACE {

namespace detail::tree_decomposing {

/// The bag into which bag b has been merged, in the end. `into`: bag → the bag into which it has been merged, or
/// itself.
inline std::uint32_t root_of(std::vector<std::uint32_t>& into, std::uint32_t b) {
  while (into[b] != b) b = into[b] = into[into[b]];
  return b;
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
        position_(n_, none),
        bag_of_(n_, none),
        mark_(n_, none),
        later_(n_),
        children_(n_) {
    if (order.size() != n_)
      throw bad_argument("the elimination order has " + detail::count_of(order.size(), "vertex", "vertices") +
                         "; the graph has " + std::to_string(n_));
    for (std::uint32_t i = 0; i < n_; ++i) {
      if (order[i] >= n_ || position_[order[i]] != none)
        throw bad_argument("vertex " + std::to_string(order[i]) + " of the elimination order " +
                           (order[i] >= n_ ? "is not a vertex of the graph" : "appears twice"));
      position_[order[i]] = i;
    }
  }

  tree_decomposition run() {
    for (std::uint32_t i = 0; i < n_ && i <= last_; ++i) {
      choose_bag(i, find_later(i));
      join_children(i);
    }
    for (std::vector<std::uint32_t>& bag : bags_) {
      for (std::uint32_t& p : bag) p = order_[p];
      std::sort(bag.begin(), bag.end());
      out_.add_bag(std::exchange(bag, {}));
    }
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
    for (const std::uint32_t c : children_[i]) {
      if (later_[c].size() > (widest == none ? 0 : later_[widest].size())) widest = c;
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
    bags_.push_back(later_[i]);
    bags_.back().push_back(i);
  }

  /// Joins the bags of the children to that of position i, and makes i a child of its first later neighbour.
  void join_children(std::uint32_t i) {
    for (const std::uint32_t c : children_[i]) {
      if (bag_of_[c] != bag_of_[i]) out_.edges.emplace_back(bag_of_[c], bag_of_[i]);
      later_[c] = {};
    }
    children_[i] = {};
    if (later_[i].empty()) return;
    const std::uint32_t parent = *std::min_element(later_[i].begin(), later_[i].end());
    children_[std::min(parent, last_)].push_back(i);
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
    if (report_.violations.size() < max_violations) report_.violations.push_back(std::move(violation));
  }

  /// The bags hold vertices, each once. Fills `holders_`.
  void check_bags() {
    for (std::uint32_t b = 0; b < tree_.size(); ++b) {
      const auto bag = tree_.bags[b];
      report_.width = std::max(report_.width, static_cast<std::int64_t>(bag.size()) - 1);
      for (std::size_t i = 0; i < bag.size(); ++i) {
        if (bag[i] >= graph_.num_vertices())
          add("bag " + std::to_string(b) + " holds " + std::to_string(bag[i]) + ", which is not a vertex");
        else
          holders_[bag[i]].push_back(b);
        if (i > 0 && bag[i - 1] >= bag[i]) add("bag " + std::to_string(b) + " is not ascending");
      }
    }
  }

  /// The edges make a tree: one less than there are bags, and none closes a cycle.
  bool check_tree() {
    const std::size_t bags = tree_.size();
    std::vector<std::uint32_t> up(bags);
    std::iota(up.begin(), up.end(), 0U);
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
      if (root_of(up, a) == root_of(up, b)) {
        add("the tree edge between bags " + std::to_string(a) + " and " + std::to_string(b) + " closes a cycle");
        tree = false;
        continue;
      }
      up[root_of(up, a)] = root_of(up, b);
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

  static constexpr std::size_t max_violations = 10;

  const undirected_graph& graph_;
  const tree_decomposition& tree_;
  std::vector<std::vector<std::uint32_t>> holders_;  // vertex → the bags that hold it, ascending
  decomposition_report report_;
};

}  // namespace detail::tree_decomposing

REMAT_INLINE void connect_bags(tree_decomposition& t) {
  using detail::tree_decomposing::root_of;
  std::vector<std::uint32_t> into(t.size());
  std::iota(into.begin(), into.end(), 0U);
  for (const auto& [a, b] : t.edges) into[root_of(into, a)] = root_of(into, b);
  for (std::uint32_t b = 1; b < into.size(); ++b)
    if (root_of(into, b) != root_of(into, 0)) {
      into[root_of(into, b)] = root_of(into, 0);
      t.edges.emplace_back(0, b);
    }
}

REMAT_INLINE tree_decomposition decomposition_of(const undirected_graph& g, std::span<const std::uint32_t> order,
                                                 std::size_t clique_from) {
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
  using detail::tree_decomposing::root_of;
  std::vector<std::uint32_t> into(t.size()), number(t.size());
  std::iota(into.begin(), into.end(), 0U);
  const auto within = [&](std::uint32_t a, std::uint32_t b) {
    const auto x = t.bags[a], y = t.bags[b];
    return x.size() <= y.size() && std::includes(y.begin(), y.end(), x.begin(), x.end());
  };
  for (const auto& [first, second] : t.edges) {
    const std::uint32_t a = root_of(into, first), b = root_of(into, second);
    if (a == b) continue;
    if (within(a, b))
      into[a] = b;
    else if (within(b, a))
      into[b] = a;
  }
  tree_decomposition out;
  for (std::uint32_t b = 0; b < t.size(); ++b) {
    if (into[b] != b) continue;
    number[b] = static_cast<std::uint32_t>(out.size());
    out.add_bag(t.bags[b]);
  }
  for (const auto& [first, second] : t.edges) {
    const std::uint32_t a = root_of(into, first), b = root_of(into, second);
    if (a != b) out.edges.emplace_back(number[a], number[b]);
  }
  return out;
}

REMAT_INLINE decomposition_report check_decomposition(const undirected_graph& g, const tree_decomposition& t) {
  return detail::tree_decomposing::checker(g, t).run();
}

}  // namespace REMAT_NAMESPACE
