// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <span>
#include <tuple>
#include <vector>

#include "remat/hierarchy/detail/cut_sequence.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"

namespace remat::detail {

namespace partitioning {

inline constexpr std::uint32_t none = operation_hierarchy::none;

/// The groups made so far, as `make_hierarchy` takes them.
struct grouping {
  std::vector<std::uint32_t> of_operation, of_group;

  explicit grouping(std::uint32_t operations) : of_operation(operations, none) {}
  /// Adds a group of atoms. An operation is named by its index, a group by the number of operations + its index.
  /// Returns the name of the group.
  std::uint32_t add(std::span<const std::uint32_t> atoms);
};

/// An atom, and the operations in it.
struct part {
  std::uint32_t atom = none;
  std::vector<std::uint32_t> operations{};
};

/// Merges the nodes of one level of a partition until few are left (see `h_partition`).
///
/// A node is an atom (an operation, or a finished group) or a set of atoms that becomes a group when the round ends.
/// The makers and readers of a tensor are lists of nodes at the time when the lists were made; a union-find structure
/// gives the present nodes, and each list is shortened when it is read.
///
/// A round merges the best candidate again and again, under a cap on the atoms of a node, until no candidate is left or
/// few enough nodes are. `run` tries for the last round every cap up to `max_group`. It takes the one after which the
/// largest node has the fewest operations, among those that leave a pure sequence if there are such. Where no cap
/// leaves few enough nodes, it makes a round with the largest cap, and the nodes that are left become the atoms of the
/// next one. No node gets more operations than twice its share of the whole; the limit doubles when a round changes
/// little.
class node_merger {
 public:
  node_merger(const flat_graph& g, const std::vector<std::uint8_t>& forward, std::uint32_t max_group, double alpha,
              grouping& groups);

  /// Merges `parts`, which are in a topological order. Tensors that forward operations outside of them make or read are
  /// inputs and outputs. Returns the atoms that are left: at most `max_left`, or a pure sequence.
  std::vector<std::uint32_t> run(std::vector<part> parts, std::uint32_t max_left);

  /// The work so far: nodes that were looked at for a candidate, makers and readers that were visited, and places in
  /// the order that were filled anew.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }

 private:
  // Bits of a tensor: forward operations outside of this level make it or read it; it is a final output.
  static constexpr std::uint8_t made_beyond = 1, read_beyond = 2, stays = 4;

  /// Units of work, for each operation of the level, after which `find_ending` tries no further caps.
  static constexpr std::uint64_t work_of_endings = 20'000;

  enum class rank : std::uint8_t { flow_or_sequence, neighbours, nothing };

  struct node {
    std::vector<std::uint32_t> atoms{};  // places in parts_; a single one: the node is finished
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
    std::uint64_t most = 0;     // operations of a piece of a sequence; 0: no sequence is cut
    std::uint64_t largest = 0;  // operations of the largest node
    std::size_t kinds = 0;      // distinct kinds of nodes
    bool sequence = false;      // the level is a pure sequence
  };

  /// The best of the endings with each cap.
  [[nodiscard]] ending find_ending();

  /// Makes a round with this cap, and says how the level ends after it; `cap` is 0 in the answer where it does not.
  [[nodiscard]] ending try_ending(std::uint32_t cap);

  /// Begins the level again, and merges candidates of at most `cap` atoms until none or few enough nodes are left.
  void merge_up_to(std::uint32_t cap);

  /// Merges best first until no candidate is left, or until there are few nodes and the next candidate is worse than
  /// the last one: equal parts stay equal.
  void merge_best();

  /// True when each node that is left but the last is read by the next one alone.
  [[nodiscard]] bool is_sequence();

  /// The nodes that are left become atoms.
  void finish_round();

  // --- The graph of the nodes.

  void start();
  [[nodiscard]] std::uint64_t kind_of(std::uint32_t operation) const;

  [[nodiscard]] bool internal(const std::vector<std::uint32_t>& makers, const std::vector<std::uint32_t>& readers,
                              std::uint32_t t) const;

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
    work_ += i;
    if (kept < i)
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(kept), list.begin() + static_cast<std::ptrdiff_t>(i));
    return going;
  }

  /// Distinct nodes that read what v makes (or make what v reads), at most `most` + 1 of them.
  void neighbours_of(std::uint32_t v, bool users, std::size_t most, std::vector<std::uint32_t>& out);

  void all_neighbours_of(std::uint32_t v, bool users, std::vector<std::uint32_t>& out);

  [[nodiscard]] std::uint32_t weight(std::uint32_t v) const {
    return static_cast<std::uint32_t>(nodes_[v].atoms.size());
  }

  // --- Candidates.

  /// (bytes of inputs + bytes of outputs) · operations^alpha.
  double score(const std::vector<std::uint32_t>& set);

  /// The node before v in a sequence: of those that only v reads the last in the order.
  std::uint32_t before(std::uint32_t v);
  std::uint32_t only_user(std::uint32_t v);
  std::uint32_t after(std::uint32_t v);

  struct found {
    rank kind = rank::nothing;
    double score = std::numeric_limits<double>::infinity();
    std::vector<std::uint32_t> nodes{};
  };

  void consider(found& best, rank kind, const std::vector<std::uint32_t>& set);

  /// The maximal sequence that begins at v, if one does, it has at most `cap_` atoms, and its nodes are no stages.
  void consider_sequence(std::uint32_t v, found& best);

  /// Whether three nodes of several atoms are alike: a chain of stages, which is not taken apart.
  [[nodiscard]] bool has_stages(const std::vector<std::uint32_t>& set) const;

  /// From v to where the paths from it meet again, and that without either end.
  void consider_flow(std::uint32_t v, found& best);

  /// The pair of v and its nearest node: the last one before v that v reads, else the first one that reads v, else the
  /// one before v in the order. The present order shows that the pair is convex.
  void consider_neighbour(std::uint32_t v, found& best);

  void watch(std::uint32_t v, std::uint32_t watcher);

  void look_at(std::uint32_t v);

  // --- Merging.

  /// Makes one node of `set`, which is convex. Returns it.
  std::uint32_t merge(std::vector<std::uint32_t> set);

  /// Appends the union of `set` as a node, and returns it. Its tensors go to `makes` and `reads`, some of them twice.
  std::uint32_t add_union(const std::vector<std::uint32_t>& set, std::vector<std::uint32_t>& makes,
                          std::vector<std::uint32_t>& reads);

  /// Puts s into the order in place of `set`, whose nodes come in this order. The order stays topological.
  void place_union(std::uint32_t s, const std::vector<std::uint32_t>& set);

  /// Gives s those of the tensors that are read, or made, outside of s, too.
  void keep_outer_tensors(std::uint32_t s, std::vector<std::uint32_t> makes, std::vector<std::uint32_t> reads);

  /// Finds new candidates for the nodes that have a new neighbour.
  void refresh(std::uint32_t s);

  // --- Sequences.

  /// A maximal sequence of at least two of the nodes that are left.
  struct sequence {
    double score;
    std::vector<std::uint32_t> nodes;
    sequence_cutter cutter;
  };
  /// The best first.
  [[nodiscard]] std::vector<sequence> find_sequences();

  /// The fewest operations of a piece with which few enough nodes are left; 0 where too many are left with any number.
  [[nodiscard]] std::uint64_t fewest_operations(const std::vector<sequence>& sequences) const;

  /// Cuts sequences into pieces of about `most` operations until few enough nodes are left, and the next sequence is
  /// worse than the last one. Returns the pieces of several nodes.
  [[nodiscard]] std::vector<std::vector<std::uint32_t>> cut(const std::vector<sequence>& sequences,
                                                            std::uint64_t most) const;

  /// Makes a node of each piece. Its children are its nodes where they are stages or have too many atoms together.
  void merge_pieces(std::vector<std::vector<std::uint32_t>> pieces);

  /// Makes a group of a node of several atoms.
  void close(std::uint32_t v);

  const flat_graph& graph_;
  const std::vector<std::uint8_t>& forward_;
  std::uint32_t max_group_;
  double alpha_;
  grouping& groups_;
  std::uint32_t max_left_ = 0, cap_ = 0;
  std::uint64_t limit_ = 0;  // operations of a node
  std::uint64_t work_ = 0;
  std::vector<part> parts_;  // the atoms of this level, and behind them the groups of the pieces
  std::vector<std::uint64_t> sub_graph_kind_;
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

}  // namespace partitioning

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/hierarchy/impl/node_merger.hpp"
#endif
