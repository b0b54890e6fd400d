// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/treewidth/detail/stop_poll.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace REMAT_NAMESPACE::detail {

/// Separators of a connected graph between two ends that grow, from small and uneven to larger and even (FlowCutter,
/// Hamann and Strasser \cite hamann2018flowcutter, here with vertices in place of edges).
///
/// The ends are two sets S and T, of one vertex each at first. A maximum flow of vertex-disjoint paths from S to T
/// gives a least separator next to S and one next to T. The smaller of the two sides becomes part of its end, together
/// with one vertex of its separator: if possible a vertex that opens no further path, and among those the vertex
/// farthest from the other end. So each separator that is returned is a least one for some S and T.
///
/// O(edges · size of the last separator) time.
class flow_cutter {
 public:
  /// A set of vertices whose removal separates the two ends.
  struct separator {
    std::vector<std::uint32_t> vertices;  ///< the vertices of the separator
    std::uint32_t smaller_side = 0;       ///< number of vertices on the smaller side
  };

  /// Keeps a reference to `g`, which must outlive the cutter. Precondition: `g` is connected. O(vertices) time.
  explicit flow_cutter(const undirected_graph& g)
      : g_(g),
        n_(static_cast<std::uint32_t>(g.num_vertices())),
        side_{half(n_), half(n_)},
        from_(n_),
        to_(n_),
        before_(2 * std::size_t{n_}) {}

  /// Separators between the vertices `s` and `t` with at most `max_size` vertices: for each size the most even one.
  /// `random` breaks ties. `stop` is asked for each path of the flow; true ends the search with the separators found so
  /// far.
  std::vector<separator> run(std::uint32_t s, std::uint32_t t, std::uint32_t max_size, random_source& random,
                             stop_function stop = nullptr) {
    std::vector<separator> found;
    if (s == t || g_.adjacent(s, t)) return found;
    std::fill(from_.begin(), from_.end(), none);
    std::fill(to_.begin(), to_.end(), none);
    begin(0, s);
    begin(1, t);
    std::uint32_t flow = 0;
    bool fresh = true;
    while (true) {
      if (must_stop(stop)) return found;
      if (fresh) {  // the flow has changed
        while (search<0>())
          if (++flow > max_size || must_stop(stop)) return found;
        search<1>();
        fresh = false;
      }
      const unsigned k = side_[0].reached <= side_[1].reached ? 0 : 1;
      const std::uint32_t smaller = side_[k].reached;
      find_border(k);
      if (found.empty() || found.back().smaller_side < smaller) {
        if (found.empty() || found.back().vertices.size() < flow) found.emplace_back();
        found.back() = {border_, smaller};
      }
      if (2 * smaller + flow >= n_) return found;
      const std::uint32_t best = next_vertex(k, random);
      if (best == none) return found;
      absorb(k);
      fresh = opens_path(k, best);
      add(k, best);
      if (fresh) continue;
      if (k == 0)
        grow<0>(best);
      else
        grow<1>(best);
    }
  }
  /// Edges looked at so far.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }

 private:
  static constexpr std::uint32_t none = undirected_graph::none;

  /// One end of the flow, and the states that it reaches. Each vertex has an entry and an exit state, and carries at
  /// most one path.
  struct half {
    explicit half(std::uint32_t n) : mine(n, 0), in(n, 0), out(n, 0), distance(n, 0) {}
    std::vector<std::uint8_t> mine;       // whether each vertex is in S (T)
    std::vector<std::uint32_t> members;   // vertices of S (T)
    std::vector<std::uint32_t> in, out;   // = stamp: the entry (exit) is reached
    std::vector<std::uint32_t> distance;  // each vertex's distance from the first one
    std::vector<std::uint32_t> list;      // states that are reached: 2 v for the entry, 2 v + 1 for the exit
    std::uint32_t stamp = 0, reached = 0;
  };

  /// Makes s the only vertex of the end k, and measures the distances from it.
  void begin(unsigned k, std::uint32_t s) {
    half& h = side_[k];
    std::fill(h.distance.begin(), h.distance.end(), n_);
    queue_.assign(1, s);
    h.distance[s] = 0;
    for (std::size_t i = 0; i < queue_.size(); ++i)
      for (const std::uint32_t u : g_.neighbours(queue_[i]))
        if (h.distance[u] == n_) {
          h.distance[u] = h.distance[queue_[i]] + 1;
          queue_.push_back(u);
        }
    std::fill(h.mine.begin(), h.mine.end(), std::uint8_t{0});
    h.members.clear();
    add(k, s);
  }

  /// The vertex of the separator `border_` that joins the end k next; `none` if each touches the other end.
  std::uint32_t next_vertex(unsigned k, random_source& random) {
    const half& other = side_[1 - k];
    std::uint32_t best = none;
    std::int64_t best_score = 0;
    for (const std::uint32_t v : border_) {
      bool touches = other.mine[v] != 0;
      for (const std::uint32_t u : g_.neighbours(v)) touches = touches || other.mine[u] != 0;
      work_ += g_.degree(v);
      if (touches) continue;
      const std::int64_t away = static_cast<std::int64_t>(other.distance[v]) - side_[k].distance[v];
      const std::int64_t score = ((opens_path(k, v) ? std::int64_t{-1} << 40 : 0) + away) * 1024 +
                                 static_cast<std::int64_t>(random.below(1024));
      if (best == none || score > best_score) {
        best = v;
        best_score = score;
      }
    }
    return best;
  }

  /// True when a further path opens if v joins the end k: the other end reaches v.
  [[nodiscard]] bool opens_path(unsigned k, std::uint32_t v) const {
    const half& other = side_[1 - k];
    return (k == 0 ? other.out[v] : other.in[v]) == other.stamp;
  }

  void add(unsigned k, std::uint32_t v) {
    if (side_[k].mine[v]) return;
    side_[k].mine[v] = 1;
    side_[k].members.push_back(v);
  }

  /// All that is fully reached becomes part of the end.
  void absorb(unsigned k) {
    for (const std::uint32_t state : side_[k].list)
      if ((k == 0) == (state % 2 == 1)) add(k, state / 2);
  }

  /// Fills `border_` with the vertices that are entered (from S: by the entry, from T: by the exit), but not crossed.
  void find_border(unsigned k) {
    border_.clear();
    const half& h = side_[k];
    for (const std::uint32_t state : h.list) {
      const std::uint32_t v = state / 2;
      if (k == 0 ? state % 2 == 0 && h.out[v] != h.stamp : state % 2 == 1 && h.in[v] != h.stamp) border_.push_back(v);
    }
  }

  /// Searches anew from the end K along what the flow leaves. From S it ends, and adds a path, when it meets T; then it
  /// returns true.
  template <unsigned K>
  bool search() {
    half& h = side_[K];
    ++h.stamp;
    h.list.clear();
    h.reached = 0;
    for (const std::uint32_t v : h.members) visit<K>(v, K == 0, none);
    return expand<K>(0);
  }

  template <unsigned K>
  void grow(std::uint32_t v) {
    const std::size_t from = side_[K].list.size();
    visit<K>(v, K == 0, none);
    expand<K>(from);
  }

  template <unsigned K>
  void visit(std::uint32_t v, bool exit, std::uint32_t before) {
    half& h = side_[K];
    std::uint32_t& seen = exit ? h.out[v] : h.in[v];
    if (seen == h.stamp) return;
    seen = h.stamp;
    if (exit == (K == 0)) ++h.reached;
    if (K == 0) before_[2 * v + (exit ? 1 : 0)] = before;
    h.list.push_back(2 * v + (exit ? 1 : 0));
  }

  template <unsigned K>
  bool expand(std::size_t from) {
    half& h = side_[K];
    for (std::size_t i = from; i < h.list.size(); ++i) {
      const std::uint32_t state = h.list[i], v = state / 2;
      const bool exit = state % 2 == 1, carries = from_[v] != none;
      if (exit == (K == 0)) {
        // Leaves v along every edge; a path through v may be taken back.
        work_ += g_.degree(v);
        for (const std::uint32_t u : g_.neighbours(v)) {
          if (h.mine[u]) continue;
          visit<K>(u, !exit, state);
          if (K == 0 && side_[1].mine[u]) {
            augment(2 * u);
            return true;
          }
        }
        if (carries && !h.mine[v]) visit<K>(v, !exit, state);
      } else if (!carries) {
        visit<K>(v, !exit, state);
      } else {
        // The path that v carries is taken back to where it comes from (goes to).
        visit<K>(K == 0 ? from_[v] : to_[v], !exit, state);
      }
    }
    return false;
  }

  /// Sends one more path along the states that led to `state`.
  void augment(std::uint32_t state) {
    // The path is walked from the far end to the near one; what is taken back first loses its links.
    path_.clear();
    for (; state != none; state = before_[state]) path_.push_back(state);
    std::reverse(path_.begin(), path_.end());
    // Edges taken back: an entry that is followed by the exit of another vertex.
    for_each_edge(0, [&](std::uint32_t a, std::uint32_t b) { to_[b] = from_[a] = none; });
    for_each_edge(1, [&](std::uint32_t a, std::uint32_t b) {
      to_[a] = b;
      from_[b] = a;
    });
  }

  /// Calls f(a, b) for two vertices a and b that are neighbours on `path_`, if it leaves a by its exit (`exit` = 1) and
  /// enters b by its entry, or the other way round (0).
  template <class F>
  void for_each_edge(std::uint32_t exit, F&& f) const {
    for (std::size_t i = 0; i + 1 < path_.size(); ++i) {
      const std::uint32_t a = path_[i], b = path_[i + 1];
      if (a % 2 == exit && b % 2 != exit && a / 2 != b / 2) f(a / 2, b / 2);
    }
  }

  const undirected_graph& g_;
  std::uint32_t n_;
  half side_[2];
  std::vector<std::uint32_t> from_, to_;  // the vertices before and after each vertex that carries a path
  std::vector<std::uint32_t> before_;     // state → the state from which S reached it
  std::vector<std::uint32_t> queue_, border_, path_;
  std::uint64_t work_ = 0;
};

}  // namespace REMAT_NAMESPACE::detail
