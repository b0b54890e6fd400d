// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <queue>
#include <span>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/treewidth/detail/adjacency.hpp"
#include "remat/treewidth/detail/stop_poll.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace REMAT_NAMESPACE::detail {

/// \file
/// Elimination orders. To eliminate a vertex is to remove it and to make its neighbours a clique. The width of an order
/// is the largest number of neighbours that a vertex has when it is eliminated. The least width of any order is the
/// treewidth of the graph.

/// The score of a vertex in a greedy elimination: a vertex of least score is eliminated next.
enum class elimination_rule : std::uint8_t {
  min_degree,       ///< the number of its neighbours
  min_fill,         ///< the number of edges that its elimination adds
  fill_and_degree,  ///< the sum of both
  sparsest          ///< added edges in proportion to the square of the number of neighbours
};

struct greedy_options {
  elimination_rule rule = elimination_rule::min_fill;
  std::uint64_t seed = 0;  ///< breaks ties
  /// Vertex → its rank, below 65536. Vertices of lower rank are eliminated first. Empty: all ranks are the same.
  std::span<const std::uint32_t> rank{};
  std::uint32_t give_up = undirected_graph::none;  ///< ends without an order as soon as the width reaches this
  stop_function stop = nullptr;                    ///< asked every fraction of a millisecond
  /// If given, a stop leaves the other vertices in any order, and `*eliminated` is the number of vertices before them.
  std::size_t* eliminated = nullptr;
};

namespace elimination_order {

/// Vertex → the pairs of its neighbours that are not joined; meaningless if `poll` stopped the count.
/// O(edges · √edges) time.
inline std::vector<std::uint64_t> fill_counts(const undirected_graph& g, stop_poll& poll) {
  const std::size_t n = g.num_vertices();
  std::vector<std::uint64_t> fill(n);
  std::vector<std::uint32_t> place(n), by_degree(n);
  std::iota(by_degree.begin(), by_degree.end(), 0U);
  std::stable_sort(by_degree.begin(), by_degree.end(), [&](auto a, auto b) { return g.degree(a) > g.degree(b); });
  for (std::uint32_t i = 0; i < n; ++i) place[by_degree[i]] = i;
  for (std::uint32_t v = 0; v < n; ++v) fill[v] = g.degree(v) * (g.degree(v) - 1) / 2;
  // Each triangle is met once, at its corner of least degree.
  std::vector<std::uint32_t> mark(n, undirected_graph::none), first;
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint32_t v = by_degree[i];
    first.clear();
    for (const std::uint32_t u : g.neighbours(v))
      if (place[u] < i) {
        mark[u] = v;
        first.push_back(u);
      }
    for (const std::uint32_t u : first) {
      if (poll.count(g.degree(u))) return fill;
      for (const std::uint32_t w : g.neighbours(u))
        if (mark[w] == v && place[w] < place[u]) {
          --fill[v];
          --fill[u];
          --fill[w];
        }
    }
  }
  return fill;
}

/// One greedy elimination. Degrees and fill are kept up to date; nothing is counted again.
template <class Adjacency>
class greedy {
 public:
  greedy(const undirected_graph& g, const greedy_options& options)
      : n_(static_cast<std::uint32_t>(g.num_vertices())),
        counts_fill_(options.rule != elimination_rule::min_degree),
        options_(options),
        random_(options.seed),
        poll_(options.stop),
        adjacency_(g),
        version_(n_, 0),
        gone_(n_, 0),
        touched_(n_, 0) {
    if (counts_fill_) fill_ = fill_counts(g, poll_);
    for (std::uint32_t v = 0; v < n_; ++v) push(v);
  }

  std::vector<std::uint32_t> run() {
    std::vector<std::uint32_t> order, around;
    order.reserve(n_);
    std::uint32_t width = 0;
    while (order.size() < n_ && !poll_.stopped()) {
      const entry top = queue_.top();
      queue_.pop();
      const std::uint32_t v = top.vertex;
      if (gone_[v] || top.version != version_[v]) continue;
      width = std::max(width, adjacency_.degree(v));
      if (width >= options_.give_up) return {};
      if (poll_.count(8 + adjacency_.degree(v) * adjacency_.row_cost(v))) break;
      order.push_back(v);
      gone_[v] = 1;
      if (order.size() + width + 1 >= n_) break;  // the other vertices cannot make the order wider
      adjacency_.neighbours(v, around);
      eliminate(v, around);
    }
    if (poll_.stopped() && options_.eliminated == nullptr) return {};
    if (options_.eliminated != nullptr) *options_.eliminated = poll_.stopped() ? order.size() : n_;
    append_rest(order);
    return order;
  }

 private:
  struct entry {
    std::uint64_t key;  // rank, score and a random number that breaks ties, from the upper bits down
    std::uint32_t vertex, version;
    bool operator<(const entry& other) const noexcept {
      return key != other.key ? key > other.key : vertex > other.vertex;
    }
  };

  /// Appends the vertices that are left, by rank.
  void append_rest(std::vector<std::uint32_t>& order) const {
    const auto rest = static_cast<std::ptrdiff_t>(order.size());
    for (std::uint32_t v = 0; v < n_; ++v)
      if (!gone_[v]) order.push_back(v);
    if (!options_.rank.empty())
      std::stable_sort(order.begin() + rest, order.end(),
                       [&](auto a, auto b) { return options_.rank[a] < options_.rank[b]; });
  }

  void eliminate(std::uint32_t v, const std::vector<std::uint32_t>& around) {
    if (!counts_fill_) {
      adjacency_.eliminate(v, around);
      for (const std::uint32_t u : around) push(u);
      return;
    }
    eliminate_counting(v, around);
    for (const std::uint32_t u : changed_) {
      touched_[u] = 0;
      push(u);
    }
    changed_.clear();
  }

  /// Puts v into the queue with its present score; older entries of v become void.
  void push(std::uint32_t v) {
    const std::uint64_t degree = adjacency_.degree(v);
    std::uint64_t score = degree;
    switch (options_.rule) {
      case elimination_rule::min_degree:
        break;
      case elimination_rule::min_fill:
        score = fill_[v] * 4;
        break;
      case elimination_rule::fill_and_degree:
        score = fill_[v] == 0 ? 0 : fill_[v] + degree;
        break;
      case elimination_rule::sparsest:
        score = fill_[v] == 0 ? 0 : 1 + fill_[v] * 100'000 / ((degree + 1) * (degree + 1)) + 1000 * degree;
        break;
    }
    constexpr std::uint64_t max_score = (std::uint64_t{1} << 32U) - 1;
    const std::uint64_t rank = options_.rank.empty() ? 0 : options_.rank[v];
    queue_.push({rank << 48U | std::min(score, max_score) << 16U | random_.next() >> 48U, v, ++version_[v]});
  }

  /// Notes that the fill of u has changed. Eliminated vertices are left out.
  void touch(std::uint32_t u) {
    if (touched_[u] || gone_[u]) return;
    touched_[u] = 1;
    changed_.push_back(u);
  }

  void eliminate_counting(std::uint32_t v, const std::vector<std::uint32_t>& around) {
    const std::uint32_t d = adjacency_.degree(v);
    if (fill_[v] != 0)
      for (std::size_t i = 0; i < around.size(); ++i)
        for (std::size_t j = 0; j < i; ++j) {
          const std::uint32_t a = around[j], b = around[i];
          if (adjacency_.adjacent(a, b)) continue;
          const std::uint32_t before_a = adjacency_.degree(a), before_b = adjacency_.degree(b);
          std::uint32_t common = 0;
          adjacency_.connect(a, b, [&](std::uint32_t w) {
            ++common;
            --fill_[w];
            touch(w);
          });
          if (poll_.count(common + adjacency_.row_cost(a))) return;
          fill_[a] += before_a - common;
          fill_[b] += before_b - common;
        }
    // The neighbours are a clique now. Removing v removes the pairs of v and a vertex outside of the clique.
    for (const std::uint32_t u : around) {
      fill_[u] -= adjacency_.degree(u) - d;
      touch(u);
    }
    adjacency_.remove(v, around);
  }

  std::uint32_t n_;
  bool counts_fill_;
  greedy_options options_;
  random_source random_;
  stop_poll poll_;
  Adjacency adjacency_;
  std::vector<std::uint64_t> fill_;
  std::vector<std::uint32_t> version_, changed_;
  std::vector<std::uint8_t> gone_, touched_;
  std::priority_queue<entry> queue_;
};

}  // namespace elimination_order

/// A greedy elimination order by a rule. Empty if it gave up, and if it was stopped without `eliminated`. When the
/// vertices that are left cannot make the order wider, they are appended by rank.
///
/// O((vertices + fill) · largest degree + updates · log(vertices)) time. Up to 16,384 vertices a matrix of bits handles
/// 64 neighbours at a time and takes vertices²/8 bytes (32 MB); larger graphs are kept as lists.
[[nodiscard]] inline std::vector<std::uint32_t> greedy_order(const undirected_graph& g,
                                                             const greedy_options& options = {}) {
  if (g.num_vertices() == 0) return {};
  if (g.num_vertices() <= 16384) return elimination_order::greedy<dense_adjacency>(g, options).run();
  return elimination_order::greedy<sparse_adjacency>(g, options).run();
}

/// An estimate of the elementary steps of one greedy order of a given width.
[[nodiscard]] inline std::uint64_t greedy_cost(const undirected_graph& g, std::uint64_t width) {
  return g.num_vertices() * (20 + width * (g.num_vertices() / 64 + 4) / 4) / 2;
}

/// Maximum cardinality search (Tarjan and Yannakakis \cite tarjan1984chordal): visits next a vertex with the most
/// visited neighbours. The order is that of the visits, reversed. In a chordal graph it adds no edge. O(vertices +
/// edges) time.
[[nodiscard]] inline std::vector<std::uint32_t> maximum_cardinality_order(const undirected_graph& g) {
  const auto n = static_cast<std::uint32_t>(g.num_vertices());
  std::vector<std::uint32_t> count(n, 0), order(n);
  std::vector<std::vector<std::uint32_t>> buckets(1);
  for (std::uint32_t v = n; v-- > 0;) buckets[0].push_back(v);
  std::vector<std::uint8_t> visited(n, 0);
  std::size_t top = 0;
  for (std::uint32_t left = n; left > 0;) {
    while (buckets[top].empty()) --top;
    const std::uint32_t v = buckets[top].back();
    buckets[top].pop_back();
    if (visited[v] || count[v] != top) continue;
    visited[v] = 1;
    order[--left] = v;
    for (const std::uint32_t u : g.neighbours(v)) {
      if (visited[u]) continue;
      if (++count[u] >= buckets.size()) buckets.emplace_back();
      buckets[count[u]].push_back(u);
      top = std::max<std::size_t>(top, count[u]);
    }
  }
  return order;
}

}  // namespace REMAT_NAMESPACE::detail
