// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/hierarchy/hierarchy.hpp"

#include <functional>
#include <queue>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/problem/detail/listed_order.hpp"

namespace REMAT_NAMESPACE {

namespace detail::hierarchy {

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
      throw bad_argument("a hierarchy needs one entry for each of " + detail::count_of(n_, "operation") + ", and got " +
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
  using edge = std::pair<std::uint32_t, std::uint32_t>;  // its ends: from, to
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
    index_rows groups;  // node → the group above it
    for (std::uint32_t node = 0; node < root_; ++node) {
      if (listed[node] != none) groups.values.push_back(above(node));
      groups.end_row();
    }
    const index_rows users = ends_of(edges), members = groups.transposed(std::size_t{root_} + 1);

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

  /// Node → the ends of the edges from it. `edges` is sorted.
  [[nodiscard]] index_rows ends_of(const std::vector<edge>& edges) const {
    index_rows rows;
    auto e = edges.begin();
    for (std::uint32_t node = 0; node <= root_; ++node) {
      for (; e != edges.end() && e->first == node; ++e) rows.values.push_back(e->second);
      rows.end_row();
    }
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
      std::uint32_t group, next;  // the group as given; the next child
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
    std::vector<std::uint32_t> place(n_, none);  // each forward operation's place; a backward one has its anchor's
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
    index_rows touched;  // place → tensors
    for (std::uint32_t i = 0; i < out_.num_forward; ++i) {
      for (const auto* rows : {&graph_.inputs, &graph_.outputs}) {
        const auto row = (*rows)[out_.order[i]];
        touched.values.insert(touched.values.end(), row.begin(), row.end());
      }
      touched.end_row();
    }
    return touched.transposed(graph_.num_tensors);
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
    // Operations of one anchor stay in the listed order: no backward operation has an anchor behind that of one that it
    // reads from, so the order stays topological.
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
  std::vector<std::vector<std::uint32_t>> children_;  // children of each group as given; the root's are at the end
  std::vector<std::uint8_t> sequence_;
  operation_hierarchy out_;
};

/// Checks an `operation_hierarchy` from the definition.
class checker {
 public:
  checker(const flat_graph& graph, const operation_hierarchy& h, const hierarchy_limits& limits)
      : graph_(graph), h_(h), limits_(limits), n_(graph.num_operations), groups_(h.groups.size()) {}

  hierarchy_report run() {
    // Each check relies on those before it.
    if (check_arrays() && check_order() && check_anchors() && check_intervals() && check_children()) check_sequences();
    return std::move(out_);
  }

 private:
  static constexpr std::uint32_t none = operation_hierarchy::none;

  void say(std::string text) {
    if (out_.violations.size() < 10) out_.violations.push_back(std::move(text));
  }
  [[nodiscard]] static std::string named(const char* what, std::size_t i) {
    return std::string(what) + " " + std::to_string(i);
  }

  // Each of these returns false if the next check cannot be made.

  [[nodiscard]] bool check_arrays() {
    if (groups_ == 0 || h_.children.begin.size() != groups_ + 1 || h_.group_of.size() != n_ || h_.anchor.size() != n_ ||
        h_.num_forward > h_.order.size()) {
      say("the arrays do not belong to a hierarchy of " + detail::count_of(n_, "operation"));
      return false;
    }
    const auto& begin = h_.children.begin;
    if (begin.front() != 0 || begin.back() > h_.children.values.size() || !std::is_sorted(begin.begin(), begin.end())) {
      say("the rows of `children` do not fit their array");
      return false;
    }
    return true;
  }

  /// A topological order of the needed operations.
  [[nodiscard]] bool check_order() {
    place_.assign(n_, none);
    for (std::uint32_t i = 0; i < h_.order.size(); ++i) {
      const std::uint32_t o = h_.order[i];
      if (o >= n_ || !graph_.needed[o])
        say("place " + std::to_string(i) + " of the order holds " + std::to_string(o) +
            ", which is not a needed operation");
      else if (place_[o] != none)
        say(named("operation", o) + " is in the order twice");
      else
        place_[o] = i;
    }
    for (std::uint32_t o = 0; o < n_; ++o)
      if (graph_.needed[o] && place_[o] == none) say(named("operation", o) + " is not in the order");
    for (std::uint32_t o = 0; o < n_; ++o) {
      if (place_[o] == none) continue;
      for (const std::uint32_t t : graph_.inputs[o])
        for (const std::uint32_t maker : graph_.producers[t])
          if (graph_.needed[maker] && place_[maker] != none && place_[maker] > place_[o])
            say(named("operation", o) + " stands before " + named("operation", maker) + ", whose tensor it reads");
    }
    return out_.valid();
  }

  /// Anchors are forward operations, in the opposite order.
  [[nodiscard]] bool check_anchors() {
    for (std::uint32_t i = 0; i < h_.order.size(); ++i) {
      const std::uint32_t o = h_.order[i], a = h_.anchor[o];
      if (i < h_.num_forward) {
        if (a != o) say("forward " + named("operation", o) + " is not its own anchor");
      } else if (a >= n_ || place_[a] == none || place_[a] >= h_.num_forward) {
        say("the anchor of " + named("operation", o) + " is no forward operation");
        return false;
      } else if (i > h_.num_forward && h_.anchor[h_.order[i - 1]] < n_ &&
                 place_[h_.anchor[h_.order[i - 1]]] < place_[a]) {
        say("backward " + named("operation", o) + " stands behind one with an earlier anchor");
      }
      if (h_.group_of[o] >= groups_ || (i >= h_.num_forward && h_.group_of[o] != h_.group_of[a])) {
        say(named("operation", o) + " is in no group, or not in that of its anchor");
        return false;
      }
    }
    return true;
  }

  /// Each group has an interval of forward operations, and the backward operations that are anchored there.
  [[nodiscard]] bool check_intervals() {
    const auto total = static_cast<std::uint32_t>(h_.order.size());
    if (h_.groups[0].parent != none || h_.groups[0].depth != 0 || h_.groups[0].forward_begin != 0 ||
        h_.groups[0].forward_end != h_.num_forward || h_.groups[0].backward_begin != h_.num_forward ||
        h_.groups[0].backward_end != total)
      say("group 0 is not the whole graph");
    for (std::size_t g = 0; g < groups_; ++g) {
      const operation_hierarchy::group& group = h_.groups[g];
      const bool ranges = group.forward_begin <= group.forward_end && group.forward_end <= h_.num_forward &&
                          group.backward_begin <= group.backward_end && group.backward_begin >= h_.num_forward &&
                          group.backward_end <= total;
      if (!ranges || (g > 0 && (group.parent >= g || group.forward_begin == group.forward_end))) {
        say(named("group", g) + " has an impossible range, or is listed before its parent");
        return false;
      }
      if (g > 0 && group.depth != h_.groups[group.parent].depth + 1) say(named("group", g) + " has a wrong depth");
      // Anchors fall along the order, so a look at both ends is enough.
      const auto anchored_at = [&](std::uint32_t i) { return place_[h_.anchor[h_.order[i]]]; };
      const bool right =
          (group.backward_begin == h_.num_forward || anchored_at(group.backward_begin - 1) >= group.forward_end) &&
          (group.backward_begin == total || anchored_at(group.backward_begin) < group.forward_end) &&
          (group.backward_end == h_.num_forward || anchored_at(group.backward_end - 1) >= group.forward_begin) &&
          (group.backward_end == total || anchored_at(group.backward_end) < group.forward_begin);
      if (!right) say(named("group", g) + " does not hold just the backward operations that are anchored in it");
    }
    return true;
  }

  /// The children divide the forward operations of their group.
  [[nodiscard]] bool check_children() {
    std::vector<std::uint32_t> held(groups_, 0);
    for (std::size_t g = 0; g < groups_; ++g) {
      std::uint32_t at = h_.groups[g].forward_begin;
      for (const std::uint32_t child : h_.children[g]) {
        if (child < n_) {
          if (place_[child] != at || h_.group_of[child] != g) {
            say(named("operation", child) + " is not where " + named("group", g) + " has it");
            return false;
          }
          ++at;
          continue;
        }
        if (child - n_ >= groups_ || h_.groups[child - n_].parent != g || h_.groups[child - n_].forward_begin != at) {
          say("child " + std::to_string(child) + " of " + named("group", g) + " is not where the group has it");
          return false;
        }
        ++held[child - n_];
        at = h_.groups[child - n_].forward_end;
      }
      if (at != h_.groups[g].forward_end) say("the children of " + named("group", g) + " are not all of it");
    }
    for (std::size_t g = 1; g < groups_; ++g)
      if (held[g] != 1) say(named("group", g) + " is a child " + detail::count_of(held[g], "time") + "; expected once");
    return out_.valid();
  }

  /// Marks of sequences, and numbers of children.
  void check_sequences() {
    for (std::size_t g = 0; g < groups_; ++g) {
      const auto children = h_.children[g];
      const auto end_of = [&](std::uint32_t child) {
        return child < n_ ? place_[child] + 1 : h_.groups[child - n_].forward_end;
      };
      bool sequence = true;
      std::uint32_t at = h_.groups[g].forward_begin;
      for (std::size_t i = 0; i + 1 < children.size() && sequence; ++i) {
        const std::uint32_t end = end_of(children[i]), next_end = end_of(children[i + 1]);
        bool read = false;
        for (; at < end; ++at)
          for (const std::uint32_t t : graph_.outputs[h_.order[at]])
            for (const std::uint32_t reader : graph_.consumers[t]) {
              if (place_[reader] == none || place_[reader] >= h_.num_forward || place_[reader] < end) continue;
              read = true;
              sequence = sequence && place_[reader] < next_end;
            }
        sequence = sequence && read;
      }
      if (sequence != h_.groups[g].sequence)
        say(named("group", g) +
            (sequence ? " is a pure sequence, and not marked as one" : " is marked as a pure sequence, and is none"));
      const std::uint32_t most = g == 0 ? limits_.max_top : limits_.max_group;
      if (!sequence && children.size() > most)
        say(named("group", g) + " has " + std::to_string(children.size()) + " children and is no sequence; at most " +
            std::to_string(most));
    }
  }

  const flat_graph& graph_;
  const operation_hierarchy& h_;
  const hierarchy_limits& limits_;
  std::uint32_t n_;
  std::size_t groups_;
  std::vector<std::uint32_t> place_{};  // operation → place in the order
  hierarchy_report out_{};
};

}  // namespace detail::hierarchy

REMAT_INLINE std::vector<std::uint8_t> forward_operations(const flat_graph& graph) {
  std::vector<std::uint8_t> forward(graph.needed);
  std::fill(forward.begin() + detail::find_forward_end(graph), forward.end(), std::uint8_t{0});
  return std::find(forward.begin(), forward.end(), std::uint8_t{1}) == forward.end() ? graph.needed : forward;
}

REMAT_INLINE operation_hierarchy make_hierarchy(const flat_graph& graph, const std::vector<std::uint8_t>& forward,
                                                std::vector<std::uint32_t> group_of_operation,
                                                std::vector<std::uint32_t> parent_of_group) {
  return detail::hierarchy::arranger(graph, forward, std::move(group_of_operation), std::move(parent_of_group)).run();
}

REMAT_INLINE hierarchy_report check_hierarchy(const flat_graph& graph, const operation_hierarchy& h,
                                              const hierarchy_limits& limits) {
  return detail::hierarchy::checker(graph, h, limits).run();
}

}  // namespace REMAT_NAMESPACE
