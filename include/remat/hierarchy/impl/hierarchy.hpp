// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/hierarchy/hierarchy.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/problem/detail/listed_order.hpp"

namespace remat {

namespace detail::nesting {

/// Builds an `operation_hierarchy` from who is in which group.
class arranger {
 public:
  static constexpr std::uint32_t none = operation_hierarchy::none;

  arranger(const flat_graph& s, const std::vector<std::uint8_t>& forward, std::vector<std::uint32_t> group_of_operation,
           std::vector<std::uint32_t> parent_of_group)
      : graph_(s),
        forward_(forward),
        n_(s.num_operations),
        groups_(static_cast<std::uint32_t>(parent_of_group.size())),
        up_(std::move(group_of_operation)) {
    if (forward_.size() != n_ || up_.size() != n_)
      throw bad_argument("a hierarchy needs one entry for each of " + std::to_string(n_) + " operations, and got " +
                         std::to_string(forward_.size()) + " and " + std::to_string(up_.size()));
    up_.insert(up_.end(), parent_of_group.begin(), parent_of_group.end());
  }

  operation_hierarchy run() {
    check_forward();
    find_depths();
    sort_children();
    lay_out();
    anchor_backward();
    return std::move(out_);
  }

 private:
  using edge = std::pair<std::uint32_t, std::uint32_t>;  // from, to
  using placed_operation =
      std::pair<std::uint32_t, std::uint32_t>;  // its anchor's distance from the end; the operation

  [[nodiscard]] bool is_forward(std::uint32_t o) const { return graph_.needed[o] && forward_[o]; }
  /// The node above an operation or group: `root_` or n_ + a group.
  [[nodiscard]] std::uint32_t above(std::uint32_t node) const { return up_[node] == none ? root_ : n_ + up_[node]; }

  void check_forward() {
    for (std::uint32_t o = 0; o < n_; ++o) {
      if (!is_forward(o)) continue;
      if (up_[o] != none && up_[o] >= groups_)
        throw bad_argument("operation " + std::to_string(o) + " is in group " + std::to_string(up_[o]) +
                           ", but there are " + std::to_string(groups_));
      for (const std::uint32_t t : graph_.inputs[o])
        for (const std::uint32_t maker : graph_.producers[t])
          if (graph_.needed[maker] && !forward_[maker])
            throw bad_argument("operation " + std::to_string(o) + " is marked as forward, but reads tensor " +
                               std::to_string(t) + " of operation " + std::to_string(maker) + ", which is not");
    }
  }

  void find_depths() {
    root_ = n_ + groups_;
    depth_.assign(std::size_t{root_} + 1, none);
    depth_[root_] = 0;
    std::vector<std::uint32_t> path;
    for (std::uint32_t g = 0; g < groups_; ++g) {
      std::uint32_t node = n_ + g;
      while (depth_[node] == none) {
        if (up_[node] != none && up_[node] >= groups_)
          throw bad_argument("group " + std::to_string(node - n_) + " is in group " + std::to_string(up_[node]) +
                             ", but there are " + std::to_string(groups_));
        path.push_back(node);
        if (path.size() > groups_) throw bad_argument("group " + std::to_string(g) + " is inside itself");
        node = above(node);
      }
      for (; !path.empty(); path.pop_back()) depth_[path.back()] = depth_[above(path.back())] + 1;
    }
    for (std::uint32_t o = 0; o < n_; ++o)
      if (is_forward(o)) depth_[o] = depth_[above(o)] + 1;
  }

  /// Orders the children of each group topologically: of those that are ready, the one listed first goes first.
  void sort_children() {
    const std::vector<std::uint32_t> listed = first_operations();
    std::vector<std::uint8_t> read_outside(std::size_t{root_} + 1, 0);
    const std::vector<edge> edges = find_edges(read_outside);
    std::vector<edge> inside;
    for (std::uint32_t node = 0; node < root_; ++node)
      if (listed[node] != none) inside.emplace_back(above(node), node);
    const index_rows users = rows_of(edges), members = rows_of(inside);

    children_.assign(std::size_t{groups_} + 1, {});
    sequence_.assign(std::size_t{groups_} + 1, 0);
    std::vector<std::uint32_t> missing(std::size_t{root_} + 1, 0);
    for (const auto& [from, to] : edges) ++missing[to];
    for (std::uint32_t g = 0; g <= groups_; ++g) {
      children_[g] = topological_order(members[n_ + g], users, listed, missing);
      if (children_[g].size() != members[n_ + g].size())
        throw bad_argument((g == groups_ ? "the whole step" : "group " + std::to_string(g)) +
                           ": a path leaves one of its groups and re-enters it; groups must be convex");
      sequence_[g] = is_sequence(children_[g], users, read_outside);
    }
  }

  /// Node → the first operation listed in it; none for operations that are not forward. Refuses empty groups.
  [[nodiscard]] std::vector<std::uint32_t> first_operations() const {
    std::vector<std::uint32_t> listed(std::size_t{root_} + 1, none);
    for (std::uint32_t o = 0; o < n_; ++o) {
      if (!is_forward(o)) continue;
      listed[o] = o;
      for (std::uint32_t g = above(o); listed[g] == none; g = above(g)) {
        listed[g] = o;
        if (g == root_) break;
      }
    }
    for (std::uint32_t g = 0; g < groups_; ++g)
      if (listed[n_ + g] == none)
        throw bad_argument("group " + std::to_string(g) + " holds no needed forward operation");
    return listed;
  }

  /// Each read in the forward part as an edge between two children of the innermost group that holds both ends; sorted,
  /// each once. Marks in `read_outside` the nodes whose results are read outside of their own group.
  [[nodiscard]] std::vector<edge> find_edges(std::vector<std::uint8_t>& read_outside) const {
    std::vector<edge> edges;
    for (std::uint32_t t = 0; t < graph_.num_tensors; ++t)
      for (const std::uint32_t reader : graph_.consumers[t]) {
        if (!is_forward(reader)) continue;
        for (const std::uint32_t maker : graph_.producers[t]) {
          if (!is_forward(maker)) continue;
          std::uint32_t a = maker, b = reader;
          while (depth_[a] > depth_[b]) climb(a, read_outside);
          while (depth_[b] > depth_[a]) b = above(b);
          while (above(a) != above(b)) {
            climb(a, read_outside);
            b = above(b);
          }
          if (a != b) edges.emplace_back(a, b);
        }
      }
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    return edges;
  }

  /// Node → the ends of the edges from it, in their order.
  [[nodiscard]] index_rows rows_of(const std::vector<edge>& edges) const {
    index_rows rows;
    rows.begin.assign(std::size_t{root_} + 2, 0);
    for (const auto& [from, to] : edges) ++rows.begin[from + 1];
    for (std::size_t i = 1; i < rows.begin.size(); ++i) rows.begin[i] += rows.begin[i - 1];
    std::vector<std::uint32_t> next(rows.begin.begin(), rows.begin.end() - 1);
    rows.values.resize(edges.size());
    for (const auto& [from, to] : edges) rows.values[next[from]++] = to;
    return rows;
  }

  /// The nodes of `group` in topological order, without those on a cycle. Counts `missing` down: node → its makers that
  /// are still to come.
  [[nodiscard]] static std::vector<std::uint32_t> topological_order(std::span<const std::uint32_t> group,
                                                                    const index_rows& users,
                                                                    const std::vector<std::uint32_t>& listed,
                                                                    std::vector<std::uint32_t>& missing) {
    using ready_child = std::pair<std::uint32_t, std::uint32_t>;
    std::priority_queue<ready_child, std::vector<ready_child>, std::greater<>> ready;
    for (const std::uint32_t node : group)
      if (missing[node] == 0) ready.emplace(listed[node], node);
    std::vector<std::uint32_t> order;
    while (!ready.empty()) {
      const std::uint32_t node = ready.top().second;
      ready.pop();
      order.push_back(node);
      for (const std::uint32_t user : users[node])
        if (--missing[user] == 0) ready.emplace(listed[user], user);
    }
    return order;
  }

  /// True when each of `children` but the last is read by the next one alone.
  [[nodiscard]] static bool is_sequence(const std::vector<std::uint32_t>& children, const index_rows& users,
                                        const std::vector<std::uint8_t>& read_outside) {
    for (std::size_t i = 0; i + 1 < children.size(); ++i) {
      const auto to = users[children[i]];
      if (read_outside[children[i]] || to.size() != 1 || to[0] != children[i + 1]) return false;
    }
    return true;
  }

  void climb(std::uint32_t& node, std::vector<std::uint8_t>& read_outside) const {
    read_outside[node] = 1;
    node = above(node);
  }

  void lay_out() {
    struct visit {
      std::uint32_t group, next;  // as given; the next child
    };
    out_.group_of.assign(n_, none);
    std::vector<std::uint32_t> number(std::size_t{groups_} + 1, none);
    std::vector<visit> stack;
    const auto enter = [&](std::uint32_t g, std::uint32_t parent) {
      number[g] = static_cast<std::uint32_t>(out_.groups.size());
      operation_hierarchy::group made;
      made.parent = parent;
      made.depth = parent == none ? 0 : out_.groups[parent].depth + 1;
      made.forward_begin = static_cast<std::uint32_t>(out_.order.size());
      made.sequence = sequence_[g] != 0;
      out_.groups.push_back(made);
      stack.push_back({g, 0});
    };
    enter(groups_, none);
    while (!stack.empty()) {
      const std::uint32_t g = stack.back().group, next = stack.back().next++;
      if (next == children_[g].size()) {
        out_.groups[number[g]].forward_end = static_cast<std::uint32_t>(out_.order.size());
        stack.pop_back();
        continue;
      }
      const std::uint32_t node = children_[g][next];
      if (node < n_) {
        out_.group_of[node] = number[g];
        out_.order.push_back(node);
      } else {
        enter(node - n_, number[g]);
      }
    }
    out_.num_forward = static_cast<std::uint32_t>(out_.order.size());
    std::vector<std::uint32_t> given(out_.groups.size());
    for (std::uint32_t g = 0; g <= groups_; ++g) given[number[g]] = g;
    for (const std::uint32_t g : given) {
      for (const std::uint32_t node : children_[g])
        out_.children.values.push_back(node < n_ ? node : n_ + number[node - n_]);
      out_.children.end_row();
    }
  }

  /// Gives each backward operation its anchor, and appends it to the order.
  void anchor_backward() {
    std::vector<std::uint32_t> place(n_, none);  // of a forward operation; of a backward one its anchor's
    for (std::uint32_t i = 0; i < out_.num_forward; ++i) place[out_.order[i]] = i;
    out_.anchor.assign(n_, none);
    for (std::uint32_t i = 0; i < out_.num_forward; ++i) out_.anchor[out_.order[i]] = out_.order[i];
    const index_rows touched = forward_touches();
    std::vector<placed_operation> behind;
    for (std::uint32_t o = 0; o < n_; ++o) {
      if (!graph_.needed[o] || forward_[o]) continue;
      if (out_.num_forward == 0)
        throw bad_argument("operation " + std::to_string(o) + " is backward, but no needed operation is forward");
      place[o] = anchor_place(o, place, touched);
      out_.anchor[o] = out_.order[place[o]];
      out_.group_of[o] = out_.group_of[out_.anchor[o]];
      behind.emplace_back(out_.num_forward - 1 - place[o], o);
    }
    append_backward(std::move(behind));
  }

  /// Tensor → where it is made or read in the forward part, ascending.
  [[nodiscard]] index_rows forward_touches() const {
    index_rows touched;
    touched.begin.assign(std::size_t{graph_.num_tensors} + 1, 0);
    const auto for_each_touch = [&](const auto& visit) {
      for (std::uint32_t i = 0; i < out_.num_forward; ++i)
        for (const auto* rows : {&graph_.inputs, &graph_.outputs})
          for (const std::uint32_t t : (*rows)[out_.order[i]]) visit(t, i);
    };
    for_each_touch([&](std::uint32_t t, std::uint32_t) { ++touched.begin[t + 1]; });
    for (std::size_t t = 0; t < graph_.num_tensors; ++t) touched.begin[t + 1] += touched.begin[t];
    touched.values.resize(touched.begin.back());
    std::vector<std::uint32_t> next(touched.begin.begin(), touched.begin.end() - 1);
    for_each_touch([&](std::uint32_t t, std::uint32_t i) { touched.values[next[t]++] = i; });
    return touched;
  }

  /// The place in the order of the anchor of backward operation o: the forward operation that touches most of what o
  /// reads, the last of equal ones. It is not behind the anchor of a backward operation that o reads from.
  [[nodiscard]] std::uint32_t anchor_place(std::uint32_t o, const std::vector<std::uint32_t>& place,
                                           const index_rows& touched) const {
    constexpr std::uint32_t looked_at = 32;  // places of each tensor, the last ones
    std::uint32_t limit = out_.num_forward - 1, best = none, most = 0;
    for (const std::uint32_t t : graph_.inputs[o])
      for (const std::uint32_t maker : graph_.producers[t])
        if (graph_.needed[maker] && !forward_[maker]) limit = std::min(limit, place[maker]);
    std::vector<std::uint32_t> near;
    for (const std::uint32_t t : graph_.inputs[o]) {
      const auto row = touched[t];
      auto at = std::upper_bound(row.begin(), row.end(), limit);
      for (std::uint32_t i = 0; i < looked_at && at != row.begin(); ++i) near.push_back(*--at);
    }
    std::sort(near.begin(), near.end());
    for (std::size_t i = 0, j = 0; i < near.size(); i = j) {
      while (j < near.size() && near[j] == near[i]) ++j;
      if (j - i >= most) {
        most = static_cast<std::uint32_t>(j - i);
        best = near[i];
      }
    }
    return best == none ? limit : best;
  }

  /// Appends the backward operations to the order, and finds the range of each group.
  void append_backward(std::vector<placed_operation> behind) {
    // In the listed order where the anchor is the same: no backward operation has an anchor behind that of one that
    // it reads from, so the order stays topological.
    std::sort(behind.begin(), behind.end());
    for (const auto& [distance, o] : behind) out_.order.push_back(o);
    const auto position = [&](std::uint32_t distance) {
      const auto at = std::lower_bound(behind.begin(), behind.end(), placed_operation{distance, 0});
      return out_.num_forward + static_cast<std::uint32_t>(at - behind.begin());
    };
    for (operation_hierarchy::group& g : out_.groups) {
      g.backward_begin = position(out_.num_forward - g.forward_end);
      g.backward_end = position(out_.num_forward - g.forward_begin);
    }
  }

  const flat_graph& graph_;
  const std::vector<std::uint8_t>& forward_;
  std::uint32_t n_, groups_, root_ = 0;  // nodes: the operations, the groups as given, the root
  std::vector<std::uint32_t> up_, depth_;
  std::vector<std::vector<std::uint32_t>> children_;  // of a group as given, at the end of the root
  std::vector<std::uint8_t> sequence_;
  operation_hierarchy out_;
};

}  // namespace detail::nesting

REMAT_INLINE std::vector<std::uint8_t> forward_operations(const flat_graph& graph) {
  std::vector<std::uint8_t> forward(graph.needed);
  std::fill(forward.begin() + detail::find_forward_end(graph), forward.end(), std::uint8_t{0});
  return std::find(forward.begin(), forward.end(), std::uint8_t{1}) == forward.end() ? graph.needed : forward;
}

REMAT_INLINE operation_hierarchy make_hierarchy(const flat_graph& graph, const std::vector<std::uint8_t>& forward,
                                                std::vector<std::uint32_t> group_of_operation,
                                                std::vector<std::uint32_t> parent_of_group) {
  return detail::nesting::arranger(graph, forward, std::move(group_of_operation), std::move(parent_of_group)).run();
}

}  // namespace remat
