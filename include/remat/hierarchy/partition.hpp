// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"

namespace remat {

struct partition_options {
  std::uint32_t max_group = 20;  ///< children of a group, M_l; a pure sequence may have more. At least 2
  std::uint32_t max_top = 30;    ///< children of the whole step, M_t; a pure sequence may have more. At least 1
  double alpha = 0.5;            ///< how much a merge counts the operations that it puts together
  /// Which operations are forward, one byte each; empty: `forward_operations`.
  std::vector<std::uint8_t> forward{};
};

namespace detail::partitioning {

inline constexpr std::uint32_t none = operation_hierarchy::none;

/// Groups as they are made: what `make_hierarchy` takes.
struct grouping {
  std::vector<std::uint32_t> of_operation, of_group;

  explicit grouping(const flat_graph& s) : of_operation(s.num_operations, none) {}
  /// A new group of atoms: an operation is its index, a group the number of operations + its index.
  std::uint32_t add(std::span<const std::uint32_t> atoms) {
    const auto g = static_cast<std::uint32_t>(of_group.size()), n = static_cast<std::uint32_t>(of_operation.size());
    of_group.push_back(none);
    for (const std::uint32_t a : atoms) (a < n ? of_operation[a] : of_group[a - n]) = g;
    return n + g;
  }
};

/// Merges the nodes of one level, best first, until there are few.
///
/// A node is an atom (an operation, or a group that is finished), or several of them that will be a group when the
/// round ends. Nodes are read through a union-find structure: a tensor lists the nodes that make and read it as they
/// were once, and the list is brought up to date when it is read.
class merger {
 public:
  merger(const flat_graph& s, const std::vector<std::uint8_t>& forward, const partition_options& options,
         grouping& groups)
      : step_(s),
        forward_(forward),
        options_(options),
        groups_(groups),
        makers_(s.num_tensors),
        readers_(s.num_tensors),
        left_(s.num_tensors, 0),
        mine_(s.num_operations, 0),
        tensor_mark_(s.num_tensors, 0) {}

  /// An atom, and the operations in it.
  struct part {
    std::uint32_t atom = none;
    std::vector<std::uint32_t> operations{};
  };

  /// `parts` in a topological order; tensors that other forward operations make or read are inputs and outputs. Returns
  /// what is left on top: at most `most_left` atoms, or a pure sequence.
  std::vector<std::uint32_t> run(const std::vector<part>& parts, std::uint32_t most_left) {
    most_left_ = most_left;
    start(parts);
    bool neighbours = false;
    while (alive_ > most_left_) {
      const std::uint32_t before = alive_;
      const bool ended = round(neighbours);
      finish_round();
      if (ended) break;
      neighbours = alive_ >= before - before / 4;  // so that there are few rounds
    }
    std::vector<std::uint32_t> left;
    for (const std::uint32_t v : order_)
      if (v != none) left.push_back(nodes_[v].atoms[0]);
    return left;
  }

 private:
  // Of a tensor, by forward operations that are not on this level; and that it is an output of the step.
  static constexpr std::uint8_t made_beyond = 1, read_beyond = 2, stays = 4;

  enum class rank : std::uint8_t { flow_or_sequence, long_sequence, neighbours, nothing };

  struct node {
    std::vector<std::uint32_t> atoms{};  // one: the node is whole
    std::uint32_t operations = 0;
    std::uint32_t listed = 0;                     // its first operation
    std::vector<std::uint32_t> makes{}, reads{};  // tensors that other nodes read, make
    std::uint32_t version = 0;
    std::vector<std::uint32_t> candidate{};  // the nodes to merge
    std::vector<std::uint32_t> watchers{};   // nodes whose candidate depends on this one
  };
  struct entry {
    rank kind;
    double score;
    std::uint32_t listed, node, version;
    [[nodiscard]] auto key() const { return std::tuple(kind, score, listed, node, version); }
    friend bool operator>(const entry& a, const entry& b) { return a.key() > b.key(); }
  };

  // --- The graph of the nodes.

  void start(const std::vector<part>& parts) {
    const auto n = static_cast<std::uint32_t>(parts.size());
    for (const std::uint32_t t : touched_) {
      makers_[t].clear();
      readers_[t].clear();
      left_[t] = 0;
    }
    nodes_.assign(n, {});
    std::vector<std::uint32_t> touched;
    for (std::uint32_t v = 0; v < n; ++v) {
      nodes_[v].atoms = {parts[v].atom};
      nodes_[v].operations = static_cast<std::uint32_t>(parts[v].operations.size());
      nodes_[v].listed = *std::min_element(parts[v].operations.begin(), parts[v].operations.end());
      for (const std::uint32_t o : parts[v].operations) {
        mine_[o] = 1;
        for (const std::uint32_t t : step_.outputs[o]) {
          makers_[t].push_back(v);
          touched.push_back(t);
        }
        for (const std::uint32_t t : step_.inputs[o]) {
          readers_[t].push_back(v);
          touched.push_back(t);
        }
      }
    }
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (const std::uint32_t t : touched) {
      for (auto* list : {&makers_[t], &readers_[t]}) {
        std::sort(list->begin(), list->end());
        list->erase(std::unique(list->begin(), list->end()), list->end());
      }
      const auto beyond = [&](std::uint32_t o) { return !mine_[o] && step_.needed[o] && forward_[o]; };
      const auto makers = step_.producers[t], readers = step_.consumers[t];
      left_[t] = static_cast<std::uint8_t>((std::any_of(makers.begin(), makers.end(), beyond) ? made_beyond : 0) |
                                           (std::any_of(readers.begin(), readers.end(), beyond) ? read_beyond : 0) |
                                           (step_.final_output[t] ? stays : 0));
      if (!internal(makers_[t], readers_[t], t)) {
        for (const std::uint32_t v : makers_[t]) nodes_[v].makes.push_back(t);
        for (const std::uint32_t v : readers_[t]) nodes_[v].reads.push_back(t);
      }
    }
    for (const part& p : parts)
      for (const std::uint32_t o : p.operations) mine_[o] = 0;
    touched_.swap(touched);
    up_.resize(n);
    order_.resize(n);
    place_.resize(n);
    for (std::uint32_t v = 0; v < n; ++v) up_[v] = order_[v] = place_[v] = v;
    alive_ = n;
    stamp_.assign(n, 0);
    mark_.assign(n, 0);
  }

  [[nodiscard]] bool internal(const std::vector<std::uint32_t>& makers, const std::vector<std::uint32_t>& readers,
                              std::uint32_t t) const {
    return left_[t] == 0 && makers.size() == 1 && (readers.empty() || (readers.size() == 1 && readers[0] == makers[0]));
  }

  std::uint32_t find(std::uint32_t v) {
    while (up_[v] != v) v = up_[v] = up_[up_[v]];
    return v;
  }

  /// Calls f for distinct nodes of `list` until f says false; the list is shortened where it repeats itself.
  template <class F>
  bool for_each(std::vector<std::uint32_t>& list, F&& f) {
    std::size_t kept = 0, i = 0;
    const std::uint32_t now = ++clock_;
    bool going = true;
    for (; i < list.size() && going; ++i) {
      const std::uint32_t v = find(list[i]);
      if (stamp_[v] == now) continue;
      stamp_[v] = now;
      list[kept++] = v;
      going = f(v);
    }
    if (kept < i)
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(kept), list.begin() + static_cast<std::ptrdiff_t>(i));
    return going;
  }

  /// Distinct nodes that read what v makes (or make what v reads), at most `most` + 1 of them.
  void neighbours_of(std::uint32_t v, bool users, std::size_t most, std::vector<std::uint32_t>& out) {
    out.clear();
    for (const std::uint32_t t : users ? nodes_[v].makes : nodes_[v].reads) {
      const bool going = for_each(users ? readers_[t] : makers_[t], [&](std::uint32_t u) {
        if (u != v && std::find(out.begin(), out.end(), u) == out.end()) out.push_back(u);
        return out.size() <= most;
      });
      if (!going) return;
    }
  }

  void all_neighbours_of(std::uint32_t v, bool users, std::vector<std::uint32_t>& out) {
    out.clear();
    for (const std::uint32_t t : users ? nodes_[v].makes : nodes_[v].reads)
      for_each(users ? readers_[t] : makers_[t], [&](std::uint32_t u) {
        if (u != v) out.push_back(u);
        return true;
      });
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
  }

  [[nodiscard]] std::uint32_t weight(std::uint32_t v) const {
    return static_cast<std::uint32_t>(nodes_[v].atoms.size());
  }

  // --- Candidates.

  /// (bytes of inputs + bytes of outputs) · operations^alpha.
  double score(const std::vector<std::uint32_t>& set) {
    const std::uint32_t now = ++mark_clock_;
    for (const std::uint32_t v : set) mark_[v] = now;
    std::int64_t bytes = 0;
    double operations = 0;
    // A tensor counts once on either side, however many of the set make or read it.
    const std::uint32_t as_output = ++tensor_clock_, as_input = ++tensor_clock_;
    const auto inside = [&](std::uint32_t u) { return mark_[u] == now; };
    for (const std::uint32_t v : set) {
      operations += nodes_[v].operations;
      for (const std::uint32_t t : nodes_[v].makes) {
        if (tensor_mark_[t] == as_output) continue;
        tensor_mark_[t] = as_output;
        if ((left_[t] & (read_beyond | stays)) != 0 || !for_each(readers_[t], inside)) bytes += step_.bytes[t];
      }
    }
    for (const std::uint32_t v : set)
      for (const std::uint32_t t : nodes_[v].reads) {
        if (tensor_mark_[t] == as_input) continue;
        tensor_mark_[t] = as_input;
        if ((left_[t] & made_beyond) != 0 || !for_each(makers_[t], inside)) bytes += step_.bytes[t];
      }
    return static_cast<double>(bytes) * std::pow(operations, options_.alpha);
  }

  /// The node before v in a sequence: of those that only v reads the last in the order.
  std::uint32_t before(std::uint32_t v) {
    neighbours_of(v, false, 4 * std::size_t{options_.max_group}, list_);
    if (list_.size() > 4 * std::size_t{options_.max_group}) return none;
    std::uint32_t best = none;
    const std::vector<std::uint32_t> all = list_;
    for (const std::uint32_t u : all)
      if (only_user(u) == v && (best == none || place_[u] > place_[best])) best = u;
    return best;
  }
  std::uint32_t only_user(std::uint32_t v) {
    for (const std::uint32_t t : nodes_[v].makes)
      if ((left_[t] & read_beyond) != 0) return none;
    neighbours_of(v, true, 1, users_);
    return users_.size() == 1 ? users_[0] : none;
  }
  std::uint32_t after(std::uint32_t v) {
    const std::uint32_t u = only_user(v);
    return u != none && before(u) == v ? u : none;
  }

  struct found {
    rank kind = rank::nothing;
    double score = std::numeric_limits<double>::infinity();
    std::vector<std::uint32_t> nodes{};
  };

  void consider(found& best, rank kind, const std::vector<std::uint32_t>& set) {
    if (set.size() < 2) return;
    const double s = score(set);
    if (std::tuple(kind, s) < std::tuple(best.kind, best.score)) {
      best.kind = kind;
      best.score = s;
      best.nodes = set;
    }
  }

  /// The maximal sequence that begins at v, if one does and it has at most M_l atoms.
  void consider_sequence(std::uint32_t v, found& best) {
    if (before(v) != none) return;
    std::vector<std::uint32_t> set{v};
    std::size_t atoms = weight(v);
    for (std::uint32_t u = after(v); u != none; u = after(u)) {
      set.push_back(u);
      atoms += weight(u);
      if (atoms > options_.max_group) break;
    }
    for (const std::uint32_t u : set) watch(u, v);
    if (atoms <= options_.max_group) consider(best, rank::flow_or_sequence, set);
  }

  /// From v to where the paths from it meet again, and that without either end.
  void consider_flow(std::uint32_t v, found& best) {
    const std::uint32_t most = options_.max_group;
    neighbours_of(v, true, std::size_t{most} + 1, list_);
    if (list_.size() < 2 || list_.size() > std::size_t{most} + 1) return;
    // The open nodes wait in the order; when there is but one, all paths go through it. A node that nobody reads leads
    // nowhere, so it does not keep paths from meeting.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> open;
    std::vector<std::uint32_t> inside;
    std::size_t atoms = 0;
    const std::uint32_t now = ++mark_clock_;
    const auto push = [&](std::uint32_t u) {
      if (mark_[u] == now) return;
      mark_[u] = now;
      open.emplace_back(place_[u], u);
      std::push_heap(open.begin(), open.end(), std::greater<>());
    };
    for (const std::uint32_t u : list_) push(u);
    watch(v, v);
    std::uint32_t end = none;
    while (end == none) {
      std::pop_heap(open.begin(), open.end(), std::greater<>());
      const std::uint32_t u = open.back().second;
      open.pop_back();
      watch(u, v);
      if (open.empty()) {
        end = u;
        break;
      }
      inside.push_back(u);
      atoms += weight(u);
      neighbours_of(u, true, std::size_t{most} + 1, list_);
      for (const std::uint32_t w : list_) push(w);
      if (atoms + open.size() > std::size_t{most} + 1 || open.empty()) return;
    }
    std::vector<std::uint32_t> set;
    for (int ends = 0; ends < 4; ++ends) {
      const std::size_t total = atoms + (ends & 1 ? weight(v) : 0) + (ends & 2 ? weight(end) : 0);
      if (total > most) continue;
      set.clear();
      if (ends & 1) set.push_back(v);
      set.insert(set.end(), inside.begin(), inside.end());
      if (ends & 2) set.push_back(end);
      consider(best, rank::flow_or_sequence, set);
    }
  }

  /// v and what it is nearest to: the last before it that it reads, else the first that reads it, else what is next to
  /// it. In the order as it is they make a convex pair.
  void consider_neighbour(std::uint32_t v, found& best) {
    std::uint32_t near = none;
    all_neighbours_of(v, false, list_);
    for (const std::uint32_t u : list_)
      if (near == none || place_[u] > place_[near]) near = u;
    if (near == none) {
      all_neighbours_of(v, true, list_);
      for (const std::uint32_t u : list_)
        if (near == none || place_[u] < place_[near]) near = u;
    }
    for (std::uint32_t i = place_[v]; near == none && i-- > 0;) near = order_[i];
    if (near == none) return;
    watch(near, v);
    if (weight(v) + weight(near) <= options_.max_group) consider(best, rank::neighbours, {near, v});
  }

  void watch(std::uint32_t v, std::uint32_t watcher) {
    std::vector<std::uint32_t>& list = nodes_[v].watchers;
    if (list.empty() || list.back() != watcher) list.push_back(watcher);
  }

  void look_at(std::uint32_t v) {
    ++nodes_[v].version;
    nodes_[v].candidate.clear();
    found best;
    consider_sequence(v, best);
    consider_flow(v, best);
    if (neighbours_ && best.kind == rank::nothing) consider_neighbour(v, best);
    if (best.kind == rank::nothing) return;
    nodes_[v].candidate = std::move(best.nodes);
    queue_.push({best.kind, best.score, nodes_[v].listed, v, nodes_[v].version});
  }

  // --- Merging.

  /// Makes one node of `set`, which is convex. Returns it.
  std::uint32_t merge(std::vector<std::uint32_t> set) {
    std::sort(set.begin(), set.end(), [&](std::uint32_t a, std::uint32_t b) { return place_[a] < place_[b]; });
    const auto s = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back({});
    node& made = nodes_.back();
    made.listed = none;
    up_.push_back(s);
    place_.push_back(0);
    stamp_.push_back(0);
    mark_.push_back(0);
    std::vector<std::uint32_t> makes, reads;
    const std::uint32_t now = ++mark_clock_;
    for (const std::uint32_t v : set) {
      mark_[v] = now;
      node& old = nodes_[v];
      made.atoms.insert(made.atoms.end(), old.atoms.begin(), old.atoms.end());
      made.operations += old.operations;
      made.listed = std::min(made.listed, old.listed);
      makes.insert(makes.end(), old.makes.begin(), old.makes.end());
      reads.insert(reads.end(), old.reads.begin(), old.reads.end());
      to_look_at_.insert(to_look_at_.end(), old.watchers.begin(), old.watchers.end());
    }
    // The order: what leads to the set goes before it, the rest of the range behind it.
    const std::uint32_t low = place_[set.front()], high = place_[set.back()];
    std::vector<std::uint32_t> lead, behind, walk(set), near;
    while (!walk.empty()) {
      const std::uint32_t v = walk.back();
      walk.pop_back();
      all_neighbours_of(v, false, near);
      for (const std::uint32_t u : near)
        if (mark_[u] != now && place_[u] >= low) {
          mark_[u] = now;
          lead.push_back(place_[u]);
          walk.push_back(u);
        }
    }
    std::sort(lead.begin(), lead.end());
    for (std::uint32_t& i : lead) i = order_[i];
    for (std::uint32_t i = low; i <= high; ++i)
      if (order_[i] != none && mark_[order_[i]] != now) behind.push_back(order_[i]);
    std::fill(order_.begin() + low, order_.begin() + high + 1, none);
    std::uint32_t next = low;
    const auto put = [&](std::uint32_t v) {
      order_[next] = v;
      place_[v] = next++;
    };
    for (const std::uint32_t v : lead) put(v);
    put(s);
    for (const std::uint32_t v : behind) put(v);

    for (const std::uint32_t v : set) {
      up_[v] = s;
      ++nodes_[v].version;
      node gone;
      gone.version = nodes_[v].version;
      nodes_[v] = std::move(gone);
    }
    for (auto* list : {&makes, &reads}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    for (const std::uint32_t t : makes)
      if ((left_[t] & (read_beyond | stays)) != 0 || !for_each(readers_[t], [&](std::uint32_t u) { return u == s; }))
        nodes_[s].makes.push_back(t);
    for (const std::uint32_t t : reads)
      if ((left_[t] & made_beyond) != 0 || !for_each(makers_[t], [&](std::uint32_t u) { return u == s; }))
        nodes_[s].reads.push_back(t);
    alive_ -= static_cast<std::uint32_t>(set.size()) - 1;
    return s;
  }

  /// Looks again at whatever has a new neighbour.
  void refresh(std::uint32_t s) {
    std::vector<std::uint32_t> list{s}, more;
    for (const bool users : {false, true}) {
      all_neighbours_of(s, users, more);
      list.insert(list.end(), more.begin(), more.end());
    }
    to_look_at_.insert(to_look_at_.end(), list.begin(), list.end());
    for (const std::uint32_t v : list) {
      // A sequence is a candidate of its first node.
      std::uint32_t first = v;
      std::size_t atoms = weight(v);
      for (std::uint32_t u = before(v); u != none && atoms <= options_.max_group; u = before(u)) {
        first = u;
        atoms += weight(u);
      }
      to_look_at_.push_back(first);
    }
    std::sort(to_look_at_.begin(), to_look_at_.end());
    to_look_at_.erase(std::unique(to_look_at_.begin(), to_look_at_.end()), to_look_at_.end());
    more.swap(to_look_at_);
    for (const std::uint32_t v : more)
      if (up_[v] == v) look_at(v);
  }

  /// Merges while something can be merged. Returns whether the level is done.
  bool round(bool neighbours) {
    neighbours_ = neighbours;
    for (std::uint32_t before = none; alive_ != before;) {
      queue_ = {};
      to_look_at_.clear();
      for (const std::uint32_t v : order_)
        if (v != none) look_at(v);
      if (!merge_best()) return true;
      before = alive_;
      if (merge_long_sequences()) return true;
    }
    return false;
  }

  /// Merges best first until there are few nodes, and then all that are as good as the last: equal parts stay equal.
  /// Returns false when there are few.
  bool merge_best() {
    rank last_kind = rank::nothing;
    double last_score = -1;
    while (!queue_.empty()) {
      const entry e = queue_.top();
      if (nodes_[e.node].version != e.version || up_[e.node] != e.node) {
        queue_.pop();
        continue;
      }
      if (alive_ <= most_left_ && (e.kind != last_kind || e.score != last_score)) return false;
      queue_.pop();
      // A merge far away may have put a path around a pair or a node that nobody reads: it is looked at again, in the
      // order as it is now.
      const std::vector<std::uint32_t> set = std::move(nodes_[e.node].candidate);
      look_at(e.node);
      if (nodes_[e.node].candidate != set) continue;
      last_kind = e.kind;
      last_score = e.score;
      refresh(merge(set));
    }
    return alive_ > most_left_;
  }

  /// Makes groups of the maximal sequences of more than M_l atoms, best first, until there are few nodes. Returns
  /// whether the level is done: few, or itself a pure sequence.
  bool merge_long_sequences() {
    std::vector<std::pair<double, std::vector<std::uint32_t>>> sequences;
    for (const std::uint32_t v : order_) {
      if (v == none || before(v) != none) continue;
      std::vector<std::uint32_t> set{v};
      for (std::uint32_t u = after(v); u != none; u = after(u)) set.push_back(u);
      if (set.size() == alive_) return true;
      if (set.size() > options_.max_group) sequences.emplace_back(score(set), std::move(set));
    }
    std::stable_sort(sequences.begin(), sequences.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    double last = -1;
    for (auto& [value, set] : sequences) {
      if (alive_ <= most_left_ && value != last) return true;
      last = value;
      for (const std::uint32_t v : set) close(v);
      close(merge(std::move(set)));
    }
    return alive_ <= most_left_;
  }

  /// Makes a group of a node of several atoms.
  void close(std::uint32_t v) {
    if (nodes_[v].atoms.size() > 1) nodes_[v].atoms = {groups_.add(nodes_[v].atoms)};
  }

  void finish_round() {
    std::vector<std::uint32_t> order;
    for (const std::uint32_t v : order_)
      if (v != none) {
        place_[v] = static_cast<std::uint32_t>(order.size());
        order.push_back(v);
        close(v);
        nodes_[v].watchers.clear();
      }
    order_.swap(order);
  }

  const flat_graph& step_;
  const std::vector<std::uint8_t>& forward_;
  const partition_options& options_;
  grouping& groups_;
  std::uint32_t most_left_ = 0;
  std::vector<node> nodes_;
  std::uint32_t alive_ = 0;
  std::vector<std::vector<std::uint32_t>> makers_, readers_;  // of a tensor: nodes
  std::vector<std::uint8_t> left_, mine_;
  std::vector<std::uint32_t> touched_;
  std::vector<std::uint32_t> up_, order_, place_;
  std::priority_queue<entry, std::vector<entry>, std::greater<>> queue_;
  std::vector<std::uint32_t> to_look_at_;
  bool neighbours_ = false;
  std::vector<std::uint32_t> tensor_mark_, stamp_, mark_, list_, users_;
  std::uint32_t clock_ = 0, mark_clock_ = 0, tensor_clock_ = 0;
};

inline std::vector<std::uint8_t> checked_forward(const flat_graph& s, const partition_options& options) {
  if (options.max_group < 2) throw bad_argument("max_group is " + std::to_string(options.max_group) + "; at least 2");
  if (options.max_top < 1) throw bad_argument("max_top is 0; at least 1");
  if (!std::isfinite(options.alpha)) throw bad_argument("alpha is not finite");
  if (options.forward.empty()) return forward_operations(s);
  if (options.forward.size() != s.num_operations)
    throw bad_argument("forward has " + std::to_string(options.forward.size()) + " entries; there are " +
                       std::to_string(s.num_operations) + " operations");
  return options.forward;
}

/// The needed forward operations as listed, and the bytes that cross each place: crossing[i] are made before the i-th
/// and read by it or a later one.
struct listed_forward {
  std::vector<std::uint32_t> operations;
  std::vector<std::int64_t> crossing;

  listed_forward(const flat_graph& s, const std::vector<std::uint8_t>& forward) {
    std::vector<std::uint32_t> place(s.num_operations, none);
    for (std::uint32_t o = 0; o < s.num_operations; ++o)
      if (s.needed[o] && forward[o]) {
        place[o] = static_cast<std::uint32_t>(operations.size());
        operations.push_back(o);
      }
    crossing.assign(operations.size() + 1, 0);
    for (std::uint32_t t = 0; t < s.num_tensors; ++t) {
      std::uint32_t from = none, to = 0;
      for (const std::uint32_t o : s.producers[t]) from = std::min(from, place[o]);
      for (const std::uint32_t o : s.consumers[t])
        if (place[o] != none) to = std::max(to, place[o]);
      if (from == none || to <= from) continue;
      crossing[from + 1] += s.bytes[t];
      crossing[to + 1] -= s.bytes[t];
    }
    for (std::size_t i = 1; i < crossing.size(); ++i) crossing[i] += crossing[i - 1];
  }
};

/// The hierarchy whose lowest groups are given sections [begin, end) of the listed forward operations, ascending and
/// apart. Each section is partitioned if it is large, and then what there is of sections and operations between them.
inline operation_hierarchy partition_sections(const flat_graph& s, const std::vector<std::uint8_t>& forward,
                                              const partition_options& options, const listed_forward& line,
                                              const std::vector<std::pair<std::size_t, std::size_t>>& sections) {
  grouping groups(s);
  merger merging(s, forward, options, groups);
  std::vector<merger::part> top;
  std::size_t done = 0;
  const auto single = [](std::uint32_t o) {
    merger::part p;
    p.atom = o;
    p.operations = {o};
    return p;
  };
  const auto loose = [&](std::size_t end, std::vector<merger::part>& to) {
    for (; done < end; ++done) to.push_back(single(line.operations[done]));
  };
  for (const auto& [begin, end] : sections) {
    loose(begin, top);
    if (end - begin < 2) continue;
    std::vector<merger::part> inside;
    loose(end, inside);
    merger::part section;
    for (const merger::part& p : inside) section.operations.push_back(p.atom);
    section.atom =
        groups.add(inside.size() <= options.max_group ? section.operations : merging.run(inside, options.max_group));
    top.push_back(std::move(section));
  }
  loose(line.operations.size(), top);
  if (top.size() > options.max_top) merging.run(top, options.max_top);
  return make_hierarchy(s, forward, std::move(groups.of_operation), std::move(groups.of_group));
}

}  // namespace detail::partitioning

/// H-Partition: groups of forward operations that few bytes enter and leave, nested from the bottom to the top, with
/// the backward that belongs to each (see `operation_hierarchy`). \cite gusak2025hiremate
///
/// A round merges the best candidate into one node, and so on. Candidates are maximal sequences (each node's only user
/// is the next) and flows (from a node to where the paths from it meet again, with or without either end; nodes that
/// nobody in the forward part reads come along). Best is the least (bytes of inputs + bytes of outputs) · (number of
/// operations)^alpha, then what is listed first; outputs are what other forward operations read, and final outputs.
/// What is merged twice in a round becomes one group. A group has at most `max_group` children, or is a pure sequence
/// of any length. When nothing can be merged, the groups are frozen and the next round begins with each as one node; it
/// all ends when at most `max_top` nodes are left, or they are a pure sequence.
///
/// Differs from the paper: all merges that are as good as the last one are made, too, so that equal parts stay equal;
/// sequences of more than `max_group` nodes come when nothing else is left; a round after one that left more than
/// three quarters of the nodes also takes pairs (a node and the last before it that it reads, or whatever is next to it
/// where nothing is connected), so that every graph gets to `max_top`.
///
/// Near-linear on graphs whose nodes have few users: each merge looks again at nodes around it, O(max_group) steps for
/// each, and reorders the operations listed between. Deterministic. Throws `bad_argument` for unusable options.
///
///     const operation_hierarchy h = h_partition(problem.graph());
///     for (std::size_t g = h.groups.size(); g-- > 1;)  // bottom up
///       solve(h.forward(g), h.backward(g));
[[nodiscard]] inline operation_hierarchy h_partition(const flat_graph& s, const partition_options& options = {}) {
  const std::vector<std::uint8_t> forward = detail::partitioning::checked_forward(s, options);
  return detail::partitioning::partition_sections(s, forward, options, detail::partitioning::listed_forward(s, forward),
                                                  {});
}

/// Sections of the listed order of at most `max_group` forward operations, cut where the fewest bytes cross in all (and
/// then in the fewest places); `h_partition` of the sections follows. O(operations · max_group) time before that.
/// Throws as `h_partition`.
[[nodiscard]] inline operation_hierarchy partition_at_cuts(const flat_graph& s, const partition_options& options = {}) {
  const std::vector<std::uint8_t> forward = detail::partitioning::checked_forward(s, options);
  const detail::partitioning::listed_forward line(s, forward);
  const std::size_t n = line.operations.size();
  using cost = std::pair<double, std::size_t>;  // bytes, cuts
  std::vector<cost> best(n + 1, cost{std::numeric_limits<double>::infinity(), 0});
  std::vector<std::size_t> from(n + 1, 0);
  best[0] = {0, 0};
  for (std::size_t i = 1; i <= n; ++i)
    for (std::size_t j = i > options.max_group ? i - options.max_group : 0; j < i; ++j) {
      const cost here{best[j].first + static_cast<double>(line.crossing[j]), best[j].second + 1};
      if (here >= best[i]) continue;
      best[i] = here;
      from[i] = j;
    }
  std::vector<std::pair<std::size_t, std::size_t>> sections;
  for (std::size_t i = n; i > 0; i = from[i]) sections.emplace_back(from[i], i);
  std::reverse(sections.begin(), sections.end());
  if (sections.size() == 1) sections.clear();
  return detail::partitioning::partition_sections(s, forward, options, line, sections);
}

/// Sections that repeat each other in the listed order: where the most operations in a row are like the ones p before
/// (time, workspace, bytes read and written), each p of them are a section, which begins where the fewest bytes cross;
/// before and behind likewise. Sections are partitioned, and then the whole, by `h_partition`. Periods of up to 1024
/// operations are found. O(operations · (1024 + log)) time for each length that repeats. Throws as `h_partition`.
[[nodiscard]] inline operation_hierarchy partition_at_repeats(const flat_graph& s,
                                                              const partition_options& options = {}) {
  const std::vector<std::uint8_t> forward = detail::partitioning::checked_forward(s, options);
  const detail::partitioning::listed_forward line(s, forward);
  const std::size_t n = line.operations.size();

  // The same number for operations that are alike.
  using likeness = std::tuple<double, std::int64_t, std::uint8_t, std::vector<std::int64_t>, std::vector<std::int64_t>>;
  std::map<likeness, std::uint32_t> kinds;
  std::vector<std::uint32_t> kind(n);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t o = line.operations[i];
    std::vector<std::int64_t> in, out;
    for (const std::uint32_t t : s.inputs[o]) in.push_back(s.bytes[t]);
    for (const std::uint32_t t : s.outputs[o]) out.push_back(s.bytes[t]);
    std::sort(in.begin(), in.end());
    std::sort(out.begin(), out.end());
    kind[i] = kinds
                  .try_emplace(likeness(s.time[o], s.workspace[o], s.once[o], std::move(in), std::move(out)),
                               static_cast<std::uint32_t>(kinds.size()))
                  .first->second;
  }
  std::vector<std::pair<std::size_t, std::size_t>> sections, todo{{0, n}};
  while (!todo.empty()) {
    const auto [begin, end] = todo.back();
    todo.pop_back();
    std::size_t period = 0, first = 0, covered = 0;
    for (std::size_t p = 2; p <= std::min<std::size_t>(1024, (end - begin) / 2); ++p)
      for (std::size_t i = begin, run = 0; i + p < end; ++i) {
        run = kind[i] == kind[i + p] ? run + 1 : 0;
        if (run < p || run + p <= covered) continue;
        covered = run + p;
        period = p;
        first = i + 1 - run;
      }
    if (period == 0) continue;
    std::size_t shift = 0;
    double fewest = std::numeric_limits<double>::infinity();
    for (std::size_t c = 0; c < period; ++c) {
      double bytes = 0;
      std::size_t times = 0;
      for (std::size_t i = first + c; i + period <= first + covered; i += period, ++times)
        bytes += static_cast<double>(line.crossing[i]);
      if (times < 2 || bytes / static_cast<double>(times) >= fewest) continue;
      fewest = bytes / static_cast<double>(times);
      shift = c;
    }
    std::size_t at = first + shift;
    todo.emplace_back(begin, at);
    for (; at + period <= first + covered; at += period) sections.emplace_back(at, at + period);
    todo.emplace_back(at, end);
  }
  std::sort(sections.begin(), sections.end());
  return detail::partitioning::partition_sections(s, forward, options, line, sections);
}

}  // namespace remat
