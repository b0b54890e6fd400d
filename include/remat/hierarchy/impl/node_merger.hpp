// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "remat/core/detail/splitmix64.hpp"
#include "remat/hierarchy/detail/cut_sequence.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE::detail::partitioning {

inline constexpr std::uint32_t none = operation_hierarchy::none;

/// The kind of a list of `count` operations of kind `last` behind one of kind `first`: however the operations are
/// divided into lists, the kind of all is the same.
inline std::uint64_t joined_kind(std::uint64_t first, std::uint64_t last, std::uint64_t count) {
  for (std::uint64_t base = 0x9e3779b97f4a7c15ULL; count != 0; count /= 2, base *= base)
    if (count % 2 != 0) first *= base;
  return first + last;
}

/// The groups made so far, as `make_hierarchy` takes them.
struct grouping {
  std::vector<std::uint32_t> of_operation, of_group;

  explicit grouping(std::uint32_t operations) : of_operation(operations, none) {}
  /// Adds a group of atoms. An operation is named by its index, a group by the number of operations + its index.
  /// Returns the name of the group.
  std::uint32_t add(std::span<const std::uint32_t> atoms) {
    const auto g = static_cast<std::uint32_t>(of_group.size()), n = static_cast<std::uint32_t>(of_operation.size());
    of_group.push_back(none);
    for (const std::uint32_t a : atoms) (a < n ? of_operation[a] : of_group[a - n]) = g;
    return n + g;
  }
};

/// An operation or a finished group, named as in `grouping`, and the operations in it.
struct atom {
  std::uint32_t name = none;
  std::vector<std::uint32_t> operations{};
};

/// Merges the nodes of one level of a partition until few are left (see `h_partition`).
///
/// A node is an atom (an operation, or a finished group) or a set of atoms that becomes a group when the round ends.
/// The makers and readers of a tensor are lists of nodes at the time when the lists were made; a union-find structure
/// gives the present nodes, and each list is shortened when it is read.
///
/// A round merges the best candidate again and again, under a cap on the atoms of a node, until no candidate is left or
/// few enough nodes are. `run` repeats these steps until few enough nodes, or a pure sequence, are left:
///
/// 1. It tries every cap up to `max_group` for the last round.
/// 2. If some caps leave a pure sequence, the others are dropped. Of those that are left, the cap after which the
///    largest node has the fewest operations ends the level.
/// 3. If no cap leaves few enough nodes, a round is made with the largest cap, and its nodes become the atoms of the
///    next round.
///
/// No node gets more operations than twice its share of the whole; the limit doubles if a round changes little.
class node_merger {
 public:
  node_merger(const flat_graph& s, const std::vector<std::uint8_t>& forward, std::uint32_t max_group, double alpha,
              grouping& groups, std::function<bool()> must_stop = {})
      : graph_(s),
        forward_(forward),
        max_group_(max_group),
        alpha_(alpha),
        groups_(groups),
        must_stop_(std::move(must_stop)),
        makers_(s.num_tensors),
        readers_(s.num_tensors),
        left_(s.num_tensors, 0),
        mine_(s.num_operations, 0),
        tensor_mark_(s.num_tensors, 0) {}

  /// Merges `atoms`, which are in a topological order. Tensors that forward operations outside of them make or read are
  /// inputs and outputs. Returns the atoms that are left: at most `max_left`, or a pure sequence, or any number if it
  /// had to stop.
  std::vector<std::uint32_t> run(std::vector<atom> atoms, std::uint32_t max_left) {
    max_left_ = max_left;
    atoms_ = std::move(atoms);
    atom_kind_.assign(atoms_.size(), 0);
    for (std::size_t i = 0; i < atoms_.size(); ++i)
      for (const std::uint32_t o : atoms_[i].operations) atom_kind_[i] = joined_kind(atom_kind_[i], kind_of(o), 1);
    std::uint64_t operations = 0;
    for (const atom& p : atoms_) operations += p.operations.size();
    const std::uint64_t share = std::max<std::uint64_t>(2, (operations + max_left - 1) / max_left);
    limit_ = 2 * share;
    neighbours_ = false;
    for (cap_ = 1, start(); alive_ > max_left_ && !is_sequence() && !stopped_; start()) {
      if (const ending best = find_ending(); best.cap != 0) {
        merge_up_to(best.cap);
        if (best.most != 0) merge_stretches(cut(find_sequences(), best.most));
        finish_round();
        break;
      }
      const std::uint32_t before = alive_;
      const auto stuck = [&] { return alive_ >= before - before / 4; };  // so that there are few rounds
      merge_up_to(max_group_);
      if (stuck()) merge_stretches(cut(find_sequences(), share));
      if (stuck() && neighbours_) limit_ *= 2;
      neighbours_ = stuck();
      finish_round();
    }
    std::vector<std::uint32_t> left;
    for (const std::uint32_t v : order_)
      if (v != none) left.push_back(atoms_[nodes_[v].atoms[0]].name);
    return left;
  }

  /// The work so far: nodes that were looked at for a candidate, makers and readers that were visited, and places in
  /// the order that were filled anew.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }

 private:
  // Bits of a tensor: forward operations outside of this level make it or read it; it is a final output.
  static constexpr std::uint8_t made_beyond = 1, read_beyond = 2, stays = 4;

  /// Units of work, for each operation of the level, after which `find_ending` tries no further caps.
  static constexpr std::uint64_t work_of_endings = 20'000;
  static constexpr std::uint64_t work_between_questions = 1 << 14;

  enum class rank : std::uint8_t { fan_or_sequence, neighbours, nothing };

  struct node {
    std::vector<std::uint32_t> atoms{};  // places in atoms_; a single one: the node is finished
    std::uint32_t operations = 0;
    std::uint32_t listed = 0;                     // its first operation
    std::uint64_t kind = 0;                       // the same for nodes of like operations in the same turn
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

  // --- Rounds.

  /// How a level can end.
  struct ending {
    std::uint32_t cap = 0;      // most atoms of a node that is no sequence; 0: there is no ending
    std::uint64_t most = 0;     // operations of a stretch of a sequence; 0: no sequence is cut
    std::uint64_t largest = 0;  // operations of the largest node
    std::size_t kinds = 0;      // distinct kinds of nodes
    bool sequence = false;      // the level is a pure sequence
  };

  /// The best of the endings with each cap.
  [[nodiscard]] ending find_ending() {
    ending best;
    // Too many nodes are left below this cap, but for sequences that are cut.
    const std::uint32_t first = atoms_.size() / max_group_ > max_left_ ? max_group_ : 1;
    std::vector<ending> all;
    std::uint64_t limit = limit_, operations = 0;
    for (const atom& p : atoms_) {
      limit = std::max<std::uint64_t>(limit, p.operations.size());
      operations += p.operations.size();
    }
    // A round on a graph without structure is expensive, and caps hardly differ: then only the largest one is tried.
    const std::uint64_t begun = work_, max_work = work_of_endings * operations;
    for (std::uint32_t cap = first; cap <= max_group_; cap = work_ - begun < max_work ? cap + 1 : max_group_) {
      if (const ending e = try_ending(cap); e.cap != 0 && e.largest <= limit) all.push_back(e);
      if (cap == max_group_ || (work_ - begun >= max_work && !all.empty()) || stopped_) break;
    }
    // Pure sequences first. Of about equally balanced ones that with the fewest distinct nodes.
    const auto is_pure = [](const ending& e) { return e.sequence; };
    if (std::any_of(all.begin(), all.end(), is_pure)) std::erase_if(all, std::not_fn(is_pure));
    std::uint64_t smallest = std::numeric_limits<std::uint64_t>::max();
    for (const ending& e : all) smallest = std::min(smallest, e.largest);
    for (const ending& e : all)
      if (e.largest <= smallest + smallest / 4 && (best.cap == 0 || e.kinds < best.kinds)) best = e;
    return best;
  }

  /// Makes a round with this cap, and says how the level ends after it; `cap` is 0 in the answer if it does not.
  [[nodiscard]] ending try_ending(std::uint32_t cap) {
    merge_up_to(cap);
    ending out;
    out.sequence = is_sequence();
    std::vector<std::vector<std::uint32_t>> stretches;
    if (alive_ > max_left_ && !out.sequence) {
      const std::vector<sequence> sequences = find_sequences();
      out.most = fewest_operations(sequences);
      if (out.most == 0) return out;
      stretches = cut(sequences, out.most);
    }
    std::set<std::uint64_t> kinds;
    std::vector<std::uint8_t> in_stretch(nodes_.size(), 0);
    for (const std::vector<std::uint32_t>& stretch : stretches) {
      std::uint64_t operations = 0, kind = 0;
      for (const std::uint32_t v : stretch) {
        in_stretch[v] = 1;
        operations += nodes_[v].operations;
        kind = joined_kind(kind, nodes_[v].kind, nodes_[v].operations);
      }
      out.largest = std::max(out.largest, operations);
      kinds.insert(kind);
    }
    for (const std::uint32_t v : order_) {
      if (v == none || in_stretch[v]) continue;
      out.largest = std::max<std::uint64_t>(out.largest, nodes_[v].operations);
      kinds.insert(nodes_[v].kind);
    }
    out.cap = cap;
    out.kinds = kinds.size();
    return out;
  }

  /// Begins the level again, and merges candidates of at most `cap` atoms until none or few enough nodes are left.
  void merge_up_to(std::uint32_t cap) {
    cap_ = cap;
    start();
    for (std::uint32_t before = none; alive_ != before && alive_ > max_left_ && !stopped_;) {
      before = alive_;
      queue_ = {};
      to_look_at_.clear();
      for (const std::uint32_t v : order_)
        if (v != none) look_at(v);
      merge_best();
    }
  }

  /// Merges best first until no candidate is left, or until there are few nodes and the next candidate is worse than
  /// the last one: equal sub-graphs stay equal.
  void merge_best() {
    rank last_kind = rank::nothing;
    double last_score = -1;
    while (!queue_.empty() && !stopped_) {
      const entry e = queue_.top();
      if (nodes_[e.node].version != e.version || up_[e.node] != e.node) {
        queue_.pop();
        continue;
      }
      if (alive_ <= max_left_ && (e.kind != last_kind || e.score != last_score)) return;
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
  }

  /// True when each node that is left but the last is read by the next one alone.
  [[nodiscard]] bool is_sequence() {
    std::uint32_t last = none;
    for (const std::uint32_t v : order_) {
      if (v == none) continue;
      if (last != none && after(last) != v) return false;
      last = v;
    }
    return true;
  }

  /// The nodes that are left become atoms.
  void finish_round() {
    std::vector<atom> left;
    std::vector<std::uint64_t> kinds;
    for (std::uint32_t& v : order_) {
      if (v == none) continue;
      close(v);
      std::uint32_t& place = nodes_[v].atoms[0];
      left.push_back(std::move(atoms_[place]));
      kinds.push_back(nodes_[v].kind);
      place = static_cast<std::uint32_t>(left.size()) - 1;
    }
    atoms_.swap(left);
    atom_kind_.swap(kinds);
  }

  // --- The graph of the nodes.

  void start() {
    const auto n = static_cast<std::uint32_t>(atoms_.size());
    for (const std::uint32_t t : touched_) {
      makers_[t].clear();
      readers_[t].clear();
      left_[t] = 0;
    }
    nodes_.assign(n, {});
    std::vector<std::uint32_t> touched;
    for (std::uint32_t v = 0; v < n; ++v) {
      nodes_[v].atoms = {v};
      nodes_[v].kind = atom_kind_[v];
      nodes_[v].operations = static_cast<std::uint32_t>(atoms_[v].operations.size());
      nodes_[v].listed = *std::min_element(atoms_[v].operations.begin(), atoms_[v].operations.end());
      for (const std::uint32_t o : atoms_[v].operations) {
        mine_[o] = 1;
        for (const std::uint32_t t : graph_.outputs[o]) {
          makers_[t].push_back(v);
          touched.push_back(t);
        }
        for (const std::uint32_t t : graph_.inputs[o]) {
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
      const auto beyond = [&](std::uint32_t o) { return !mine_[o] && graph_.needed[o] && forward_[o]; };
      const auto makers = graph_.producers[t], readers = graph_.consumers[t];
      left_[t] = static_cast<std::uint8_t>((std::any_of(makers.begin(), makers.end(), beyond) ? made_beyond : 0) |
                                           (std::any_of(readers.begin(), readers.end(), beyond) ? read_beyond : 0) |
                                           (graph_.final_output[t] ? stays : 0));
      if (!internal(makers_[t], readers_[t], t)) {
        for (const std::uint32_t v : makers_[t]) nodes_[v].makes.push_back(t);
        for (const std::uint32_t v : readers_[t]) nodes_[v].reads.push_back(t);
      }
    }
    for (const atom& p : atoms_)
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

  [[nodiscard]] std::uint64_t kind_of(std::uint32_t o) const {
    std::uint64_t in = 0, out = 0;
    for (const std::uint32_t t : graph_.inputs[o]) in += mix_bits(static_cast<std::uint64_t>(graph_.bytes[t]) + 1);
    for (const std::uint32_t t : graph_.outputs[o]) out += mix_bits(static_cast<std::uint64_t>(graph_.bytes[t]) + 1);
    return mix_bits(in + mix_bits(out + mix_bits(static_cast<std::uint64_t>(graph_.workspace[o]) + graph_.once[o])));
  }

  [[nodiscard]] bool internal(const std::vector<std::uint32_t>& makers, const std::vector<std::uint32_t>& readers,
                              std::uint32_t t) const {
    return left_[t] == 0 && makers.size() == 1 && (readers.empty() || (readers.size() == 1 && readers[0] == makers[0]));
  }

  std::uint32_t find(std::uint32_t v) {
    while (up_[v] != v) v = up_[v] = up_[up_[v]];
    return v;
  }

  /// Calls f for distinct nodes of `list` until f says false; the list is shortened if it repeats itself.
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
    work_ += i;
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
        if ((left_[t] & (read_beyond | stays)) != 0 || !for_each(readers_[t], inside)) bytes += graph_.bytes[t];
      }
    }
    for (const std::uint32_t v : set)
      for (const std::uint32_t t : nodes_[v].reads) {
        if (tensor_mark_[t] == as_input) continue;
        tensor_mark_[t] = as_input;
        if ((left_[t] & made_beyond) != 0 || !for_each(makers_[t], inside)) bytes += graph_.bytes[t];
      }
    return static_cast<double>(bytes) * std::pow(operations, alpha_);
  }

  /// The node before v in a sequence: of those that only v reads the last in the order.
  std::uint32_t before(std::uint32_t v) {
    neighbours_of(v, false, 4 * std::size_t{max_group_}, list_);
    if (list_.size() > 4 * std::size_t{max_group_}) return none;
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
    std::uint64_t operations = 0;
    for (const std::uint32_t v : set) operations += nodes_[v].operations;
    if (operations > limit_) return;
    const double s = score(set);
    if (std::tuple(kind, s) < std::tuple(best.kind, best.score)) {
      best.kind = kind;
      best.score = s;
      best.nodes = set;
    }
  }

  /// The maximal sequence that begins at v, if one does, it has at most `cap_` atoms, and its nodes are no stages.
  void consider_sequence(std::uint32_t v, found& best) {
    if (before(v) != none) return;
    std::vector<std::uint32_t> set{v};
    std::size_t atoms = weight(v);
    for (std::uint32_t u = after(v); u != none; u = after(u)) {
      set.push_back(u);
      atoms += weight(u);
      if (atoms > cap_) break;
    }
    for (const std::uint32_t u : set) watch(u, v);
    if (atoms <= cap_ && !has_stages(set)) consider(best, rank::fan_or_sequence, set);
  }

  /// True if three nodes of several atoms are alike: a chain of stages, which is not taken apart.
  [[nodiscard]] bool has_stages(const std::vector<std::uint32_t>& set) const {
    for (std::size_t i = 0; i < set.size(); ++i)
      if (weight(set[i]) > 1 &&
          std::count_if(set.begin(), set.begin() + static_cast<std::ptrdiff_t>(i),
                        [&](std::uint32_t u) { return nodes_[u].kind == nodes_[set[i]].kind; }) == 2)
        return true;
    return false;
  }

  /// Considers the fan from v to where the paths from it meet again, and that without either end.
  void consider_fan(std::uint32_t v, found& best) {
    const std::uint32_t most = cap_;
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
      consider(best, rank::fan_or_sequence, set);
    }
  }

  /// The pair of v and its nearest node: the last one before v that v reads, else the first one that reads v, else the
  /// one before v in the order. The present order shows that the pair is convex.
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
    if (weight(v) + weight(near) <= cap_) consider(best, rank::neighbours, {near, v});
  }

  /// Asks the caller now and then. Once true, it stays true.
  [[nodiscard]] bool must_stop() {
    if (stopped_ || work_ < next_question_) return stopped_;
    next_question_ = work_ + work_between_questions;
    stopped_ = must_stop_ && must_stop_();
    return stopped_;
  }

  void watch(std::uint32_t v, std::uint32_t watcher) {
    std::vector<std::uint32_t>& list = nodes_[v].watchers;
    if (list.empty() || list.back() != watcher) list.push_back(watcher);
  }

  void look_at(std::uint32_t v) {
    ++work_;
    if (must_stop()) return;
    ++nodes_[v].version;
    nodes_[v].candidate.clear();
    found best;
    consider_sequence(v, best);
    consider_fan(v, best);
    if (neighbours_ && best.kind == rank::nothing) consider_neighbour(v, best);
    if (best.kind == rank::nothing) return;
    nodes_[v].candidate = std::move(best.nodes);
    queue_.push({best.kind, best.score, nodes_[v].listed, v, nodes_[v].version});
  }

  // --- Merging.

  /// Makes one node of `set`, which is convex. Returns it.
  std::uint32_t merge(std::vector<std::uint32_t> set) {
    std::sort(set.begin(), set.end(), [&](std::uint32_t a, std::uint32_t b) { return place_[a] < place_[b]; });
    std::vector<std::uint32_t> makes, reads;
    const std::uint32_t s = add_union(set, makes, reads);
    place_union(s, set);
    for (const std::uint32_t v : set) {
      up_[v] = s;
      node gone;
      gone.version = nodes_[v].version + 1;
      nodes_[v] = std::move(gone);
    }
    keep_outer_tensors(s, std::move(makes), std::move(reads));
    alive_ -= static_cast<std::uint32_t>(set.size()) - 1;
    return s;
  }

  /// Appends the union of `set` as a node, and returns it. Its tensors go to `makes` and `reads`, some of them twice.
  std::uint32_t add_union(const std::vector<std::uint32_t>& set, std::vector<std::uint32_t>& makes,
                          std::vector<std::uint32_t>& reads) {
    const auto s = static_cast<std::uint32_t>(nodes_.size());
    nodes_.push_back({});
    node& made = nodes_.back();
    made.listed = none;
    up_.push_back(s);
    place_.push_back(0);
    stamp_.push_back(0);
    mark_.push_back(0);
    for (const std::uint32_t v : set) {
      const node& old = nodes_[v];
      made.atoms.insert(made.atoms.end(), old.atoms.begin(), old.atoms.end());
      made.operations += old.operations;
      made.kind = joined_kind(made.kind, old.kind, old.operations);
      made.listed = std::min(made.listed, old.listed);
      makes.insert(makes.end(), old.makes.begin(), old.makes.end());
      reads.insert(reads.end(), old.reads.begin(), old.reads.end());
      to_look_at_.insert(to_look_at_.end(), old.watchers.begin(), old.watchers.end());
    }
    return s;
  }

  /// Puts s into the order in place of `set`, whose nodes come in this order. The order stays topological.
  void place_union(std::uint32_t s, const std::vector<std::uint32_t>& set) {
    const std::uint32_t now = ++mark_clock_;
    for (const std::uint32_t v : set) mark_[v] = now;
    // Nodes that lead to the set go before it, the rest of the range behind it.
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
    work_ += high - low;
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
  }

  /// Gives s those of the tensors that are read, or made, outside of s, too.
  void keep_outer_tensors(std::uint32_t s, std::vector<std::uint32_t> makes, std::vector<std::uint32_t> reads) {
    for (auto* list : {&makes, &reads}) {
      std::sort(list->begin(), list->end());
      list->erase(std::unique(list->begin(), list->end()), list->end());
    }
    const auto is_union = [s](std::uint32_t u) { return u == s; };
    for (const std::uint32_t t : makes)
      if ((left_[t] & (read_beyond | stays)) != 0 || !for_each(readers_[t], is_union)) nodes_[s].makes.push_back(t);
    for (const std::uint32_t t : reads)
      if ((left_[t] & made_beyond) != 0 || !for_each(makers_[t], is_union)) nodes_[s].reads.push_back(t);
  }

  /// Finds new candidates for the nodes that have a new neighbour.
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
      for (std::uint32_t u = before(v); u != none && atoms <= cap_; u = before(u)) {
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

  // --- Sequences.

  /// A maximal sequence of at least two of the nodes that are left.
  struct sequence {
    double score;
    std::vector<std::uint32_t> nodes;
    sequence_cutter cutter;
  };
  /// The best first.
  [[nodiscard]] std::vector<sequence> find_sequences() {
    std::vector<sequence> out;
    for (const std::uint32_t v : order_) {
      if (v == none || before(v) != none) continue;
      std::vector<std::uint32_t> set{v};
      for (std::uint32_t u = after(v); u != none; u = after(u)) set.push_back(u);
      if (set.size() < 2) continue;
      std::vector<std::uint64_t> kinds;
      std::vector<std::uint32_t> operations;
      std::vector<std::int64_t> crossing{0};
      for (const std::uint32_t u : set) {
        kinds.push_back(nodes_[u].kind);
        operations.push_back(nodes_[u].operations);
        std::int64_t bytes = 0;
        for (const std::uint32_t t : nodes_[u].makes) bytes += graph_.bytes[t];
        crossing.push_back(bytes);
      }
      const double value = score(set);
      out.push_back({value, std::move(set), sequence_cutter(kinds, operations, crossing)});
    }
    std::stable_sort(out.begin(), out.end(), [](const sequence& a, const sequence& b) { return a.score < b.score; });
    return out;
  }

  /// The fewest operations of a stretch with which few enough nodes are left; 0 if too many are left with any number.
  [[nodiscard]] std::uint64_t fewest_operations(const std::vector<sequence>& sequences) const {
    std::size_t others = alive_;
    std::uint64_t low = 1, high = 2;  // low is too few, high is enough
    for (const sequence& s : sequences) {
      others -= s.nodes.size();
      high = std::max(high, s.cutter.total());
    }
    const auto fits = [&](std::uint64_t most) {
      std::size_t nodes = others;
      for (const sequence& s : sequences) nodes += s.cutter.count(most);
      return nodes <= max_left_;
    };
    if (!fits(high)) return 0;
    while (high - low > 1) (fits(low + (high - low) / 2) ? high : low) = low + (high - low) / 2;
    return high;
  }

  /// Cuts sequences into stretches of about `most` operations until few enough nodes are left, and the next sequence is
  /// worse than the last one. Returns the stretches of several nodes.
  [[nodiscard]] std::vector<std::vector<std::uint32_t>> cut(const std::vector<sequence>& sequences,
                                                            std::uint64_t most) const {
    std::vector<std::vector<std::uint32_t>> stretches;
    std::size_t left = alive_;
    double last_score = -1;
    for (const sequence& s : sequences) {
      if (left <= max_left_ && s.score != last_score) break;
      last_score = s.score;
      for (const auto& [from, to] : s.cutter.cut(most)) {
        if (to - from < 2) continue;
        stretches.emplace_back(s.nodes.begin() + static_cast<std::ptrdiff_t>(from),
                               s.nodes.begin() + static_cast<std::ptrdiff_t>(to));
        left -= to - from - 1;
      }
    }
    return stretches;
  }

  /// Makes a node of each stretch. Its children are its nodes if they are stages or have too many atoms together.
  void merge_stretches(std::vector<std::vector<std::uint32_t>> stretches) {
    for (std::vector<std::uint32_t>& stretch : stretches) {
      std::size_t atoms = 0;
      for (const std::uint32_t v : stretch) atoms += weight(v);
      if (atoms > max_group_ || has_stages(stretch))
        for (const std::uint32_t v : stretch) close(v);
      merge(std::move(stretch));
    }
  }

  /// Makes a group of a node of several atoms.
  void close(std::uint32_t v) {
    if (nodes_[v].atoms.size() < 2) return;
    atom group;
    std::vector<std::uint32_t> names;
    for (const std::uint32_t i : nodes_[v].atoms) {
      names.push_back(atoms_[i].name);
      group.operations.insert(group.operations.end(), atoms_[i].operations.begin(), atoms_[i].operations.end());
    }
    group.name = groups_.add(names);
    nodes_[v].atoms = {static_cast<std::uint32_t>(atoms_.size())};
    atoms_.push_back(std::move(group));
  }

  const flat_graph& graph_;
  const std::vector<std::uint8_t>& forward_;
  std::uint32_t max_group_;
  double alpha_;
  grouping& groups_;
  std::function<bool()> must_stop_;
  bool stopped_ = false;
  std::uint64_t next_question_ = 0;  // the work at which `must_stop_` is asked
  std::uint32_t max_left_ = 0, cap_ = 0;
  std::uint64_t limit_ = 0;  // operations of a node
  std::uint64_t work_ = 0;
  std::vector<atom> atoms_;  // the atoms of this level, and behind them the groups of the stretches
  std::vector<std::uint64_t> atom_kind_;
  std::vector<node> nodes_;
  std::uint32_t alive_ = 0;
  std::vector<std::vector<std::uint32_t>> makers_, readers_;  // nodes that make, and that read, each tensor
  std::vector<std::uint8_t> left_, mine_;
  std::vector<std::uint32_t> touched_;
  std::vector<std::uint32_t> up_, order_, place_;
  std::priority_queue<entry, std::vector<entry>, std::greater<>> queue_;
  std::vector<std::uint32_t> to_look_at_;
  bool neighbours_ = false;
  std::vector<std::uint32_t> tensor_mark_, stamp_, mark_, list_, users_;
  std::uint32_t clock_ = 0, mark_clock_ = 0, tensor_clock_ = 0;
};

}  // namespace REMAT_NAMESPACE::detail::partitioning
