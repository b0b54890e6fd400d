// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/problem/phase.hpp"
#include "remat/problem/problem.hpp"

namespace remat {

/// Which operations are forward, for a step that does not say: the needed ones listed before the turn
/// (`find_forward_end`); all of them where nothing stands before it.
///
/// One byte for each operation, 0 for what is not needed. O(operations + reads and writes) time.
[[nodiscard]] inline std::vector<std::uint8_t> forward_operations(const flat_graph& s) {
  std::vector<std::uint8_t> forward(s.needed);
  std::fill(forward.begin() + find_forward_end(s), forward.end(), std::uint8_t{0});
  return std::find(forward.begin(), forward.end(), std::uint8_t{1}) == forward.end() ? s.needed : forward;
}

/// The operations of a step in nested groups: each is a part of the forward with the backward that belongs to it.
///
/// Operations that are not needed are in none. `order` is a topological order of the others in which the forward
/// operations stand first, and every group is two intervals: one of forward operations, one of backward operations. So
/// the forward of a group is convex (no path leaves and re-enters it), its backward likewise, and the step is: forwards
/// of a group's children in turn, …, their backwards in the opposite turn, at each level.
///
/// A backward operation has an *anchor*, a forward operation, and belongs to all groups that hold it. In the order of
/// the step, the anchor is, of the forward operations that make or read a forward tensor that it reads, the one that
/// does so for most of them (of several the last in `order`), but never one behind the anchor of a backward operation
/// whose result it reads; where there is none such, the earliest of those anchors; where it reads no backward operation
/// either, the last forward operation. Of the makers and readers of one tensor, the last 32 up to that limit are looked
/// at.
struct operation_hierarchy {
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  struct group {
    std::uint32_t parent = none;
    std::uint32_t depth = 0;
    std::uint32_t forward_begin = 0, forward_end = 0;    ///< of `order`
    std::uint32_t backward_begin = 0, backward_end = 0;  ///< of `order`
    /// What each child but the last makes is read by the next child, and in the forward part by no other operation.
    bool sequence = false;
  };

  std::vector<std::uint32_t> order{};
  std::uint32_t num_forward = 0;
  std::vector<group> groups{};  ///< [0] is the whole step; parents stand before their children
  /// group → its children in turn: a forward operation, or `group_of.size()` + a group.
  index_rows children{};
  std::vector<std::uint32_t> group_of{};  ///< operation → the innermost group that holds it
  std::vector<std::uint32_t> anchor{};    ///< operation → forward operation; of a forward operation itself

  [[nodiscard]] std::span<const std::uint32_t> forward(std::size_t g) const noexcept {
    return {order.data() + groups[g].forward_begin, order.data() + groups[g].forward_end};
  }
  [[nodiscard]] std::span<const std::uint32_t> backward(std::size_t g) const noexcept {
    return {order.data() + groups[g].backward_begin, order.data() + groups[g].backward_end};
  }
  [[nodiscard]] bool is_group(std::uint32_t child) const noexcept { return child >= group_of.size(); }
  /// Precondition: `is_group(child)`.
  [[nodiscard]] std::uint32_t group_at(std::uint32_t child) const noexcept {
    return child - static_cast<std::uint32_t>(group_of.size());
  }
  /// Of the deepest group; 0 where there is none but the whole step.
  [[nodiscard]] std::uint32_t depth() const noexcept {
    std::uint32_t most = 0;
    for (const group& g : groups) most = std::max(most, g.depth);
    return most;
  }
};

namespace detail::nesting {

/// Builds an `operation_hierarchy` from who is in which group.
class arranger {
 public:
  static constexpr std::uint32_t none = operation_hierarchy::none;

  arranger(const flat_graph& s, const std::vector<std::uint8_t>& forward, std::vector<std::uint32_t> group_of_operation,
           std::vector<std::uint32_t> parent_of_group)
      : step_(s),
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
  [[nodiscard]] bool is_forward(std::uint32_t o) const { return step_.needed[o] && forward_[o]; }
  /// The node above an operation or group: `root_` or n_ + a group.
  [[nodiscard]] std::uint32_t above(std::uint32_t node) const { return up_[node] == none ? root_ : n_ + up_[node]; }

  void check_forward() {
    for (std::uint32_t o = 0; o < n_; ++o) {
      if (!is_forward(o)) continue;
      if (up_[o] != none && up_[o] >= groups_)
        throw bad_argument("operation " + std::to_string(o) + " is in group " + std::to_string(up_[o]) +
                           ", but there are " + std::to_string(groups_));
      for (const std::uint32_t t : step_.inputs[o])
        for (const std::uint32_t maker : step_.producers[t])
          if (step_.needed[maker] && !forward_[maker])
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
    std::vector<std::uint32_t> listed(std::size_t{root_} + 1, none);  // the first operation in it
    std::vector<std::uint32_t> nodes;
    for (std::uint32_t o = 0; o < n_; ++o) {
      if (!is_forward(o)) continue;
      listed[o] = o;
      for (std::uint32_t g = above(o); listed[g] == none; g = above(g)) {
        listed[g] = o;
        if (g == root_) break;
      }
      nodes.push_back(o);
    }
    for (std::uint32_t g = 0; g < groups_; ++g) {
      if (listed[n_ + g] == none)
        throw bad_argument("group " + std::to_string(g) + " holds no needed forward operation");
      nodes.push_back(n_ + g);
    }
    const auto rows_of = [&](const std::vector<std::pair<std::uint32_t, std::uint32_t>>& pairs) {
      index_rows rows;
      rows.begin.assign(std::size_t{root_} + 2, 0);
      for (const auto& [from, to] : pairs) ++rows.begin[from + 1];
      for (std::size_t i = 1; i < rows.begin.size(); ++i) rows.begin[i] += rows.begin[i - 1];
      std::vector<std::uint32_t> next(rows.begin.begin(), rows.begin.end() - 1);
      rows.values.resize(pairs.size());
      for (const auto& [from, to] : pairs) rows.values[next[from]++] = to;
      return rows;
    };
    std::vector<std::pair<std::uint32_t, std::uint32_t>> inside, edges;
    for (const std::uint32_t node : nodes) inside.emplace_back(above(node), node);

    // Each read is an edge between two children of the innermost group that holds both ends.
    std::vector<std::uint8_t> read_outside(std::size_t{root_} + 1, 0);  // of the node's own group, in the forward part
    for (std::uint32_t t = 0; t < step_.num_tensors; ++t)
      for (const std::uint32_t reader : step_.consumers[t]) {
        if (!is_forward(reader)) continue;
        for (const std::uint32_t maker : step_.producers[t]) {
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
    const index_rows users = rows_of(edges), members = rows_of(inside);

    children_.assign(std::size_t{groups_} + 1, {});
    sequence_.assign(std::size_t{groups_} + 1, 0);
    std::vector<std::uint32_t> missing(std::size_t{root_} + 1, 0);
    for (const auto& [from, to] : edges) ++missing[to];
    using ready_child = std::pair<std::uint32_t, std::uint32_t>;
    std::priority_queue<ready_child, std::vector<ready_child>, std::greater<>> ready;
    for (std::uint32_t g = 0; g <= groups_; ++g) {
      std::vector<std::uint32_t>& children = children_[g];
      for (const std::uint32_t node : members[n_ + g])
        if (missing[node] == 0) ready.emplace(listed[node], node);
      while (!ready.empty()) {
        const std::uint32_t node = ready.top().second;
        ready.pop();
        children.push_back(node);
        for (const std::uint32_t user : users[node])
          if (--missing[user] == 0) ready.emplace(listed[user], user);
      }
      if (children.size() != members[n_ + g].size())
        throw bad_argument((g == groups_ ? "the whole step" : "group " + std::to_string(g)) +
                           ": a path leaves one of its groups and re-enters it; groups must be convex");
      bool sequence = true;
      for (std::size_t i = 0; i + 1 < children.size(); ++i) {
        const auto to = users[children[i]];
        sequence = sequence && !read_outside[children[i]] && to.size() == 1 && to[0] == children[i + 1];
      }
      sequence_[g] = sequence;
    }
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

  void anchor_backward() {
    constexpr std::uint32_t looked_at = 32;
    std::vector<std::uint32_t> place(n_, none);  // of a forward operation; of a backward one its anchor's
    // Tensor → where it is made or read in the forward part, ascending.
    index_rows touched;
    touched.begin.assign(std::size_t{step_.num_tensors} + 1, 0);
    for (int filling = 0; filling < 2; ++filling) {
      std::vector<std::uint32_t> next(touched.begin.begin(), touched.begin.end() - 1);
      for (std::uint32_t i = 0; i < out_.num_forward; ++i) {
        const std::uint32_t o = out_.order[i];
        place[o] = i;
        for (const auto* rows : {&step_.inputs, &step_.outputs})
          for (const std::uint32_t t : (*rows)[o]) {
            if (filling)
              touched.values[next[t]++] = i;
            else
              ++touched.begin[t + 1];
          }
      }
      if (filling) break;
      for (std::size_t t = 0; t < step_.num_tensors; ++t) touched.begin[t + 1] += touched.begin[t];
      touched.values.resize(touched.begin.back());
    }

    out_.anchor.assign(n_, none);
    for (std::uint32_t i = 0; i < out_.num_forward; ++i) out_.anchor[out_.order[i]] = out_.order[i];
    std::vector<std::pair<std::uint32_t, std::uint32_t>> behind;  // how far from the end; the operation
    std::vector<std::uint32_t> near;
    for (std::uint32_t o = 0; o < n_; ++o) {
      if (!step_.needed[o] || forward_[o]) continue;
      if (out_.num_forward == 0)
        throw bad_argument("operation " + std::to_string(o) + " is backward, but no needed operation is forward");
      const std::uint32_t end = out_.num_forward - 1;
      std::uint32_t limit = end, best = none, most = 0;
      for (const std::uint32_t t : step_.inputs[o])
        for (const std::uint32_t maker : step_.producers[t])
          if (step_.needed[maker] && !forward_[maker]) limit = std::min(limit, place[maker]);
      near.clear();
      for (const std::uint32_t t : step_.inputs[o]) {
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
      place[o] = best == none ? limit : best;
      out_.anchor[o] = out_.order[place[o]];
      out_.group_of[o] = out_.group_of[out_.anchor[o]];
      behind.emplace_back(end - place[o], o);
    }
    // In the listed order where the anchor is the same: no backward operation has an anchor behind that of one that
    // it reads from, so the order stays topological.
    std::sort(behind.begin(), behind.end());
    for (const auto& [distance, o] : behind) out_.order.push_back(o);
    for (operation_hierarchy::group& g : out_.groups) {
      const auto position = [&](std::uint32_t distance) {
        const auto at = std::lower_bound(behind.begin(), behind.end(), std::pair{distance, std::uint32_t{0}});
        return out_.num_forward + static_cast<std::uint32_t>(at - behind.begin());
      };
      g.backward_begin = position(out_.num_forward - g.forward_end);
      g.backward_end = position(out_.num_forward - g.forward_begin);
    }
  }

  const flat_graph& step_;
  const std::vector<std::uint8_t>& forward_;
  std::uint32_t n_, groups_, root_ = 0;  // nodes: the operations, the groups as given, the root
  std::vector<std::uint32_t> up_, depth_;
  std::vector<std::vector<std::uint32_t>> children_;  // of a group as given, at the end of the root
  std::vector<std::uint8_t> sequence_;
  operation_hierarchy out_;
};

}  // namespace detail::nesting

/// The hierarchy with these groups of forward operations: `group_of_operation` says in which group each needed forward
/// operation is directly, `parent_of_group` in which group each group is (`operation_hierarchy::none`: in the whole
/// step). What is said of other operations is not looked at.
///
/// O((operations + reads and writes) · (depth + log operations)) time, where tensors with several producers count a
/// read once for each. Throws `bad_argument` for an index out of range, a group that is empty or inside itself or not
/// convex beside its neighbours, and a forward operation that reads what a backward operation makes.
[[nodiscard]] inline operation_hierarchy make_hierarchy(const flat_graph& s, const std::vector<std::uint8_t>& forward,
                                                        std::vector<std::uint32_t> group_of_operation,
                                                        std::vector<std::uint32_t> parent_of_group) {
  return detail::nesting::arranger(s, forward, std::move(group_of_operation), std::move(parent_of_group)).run();
}

}  // namespace remat
