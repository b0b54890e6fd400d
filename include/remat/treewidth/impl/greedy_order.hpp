// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/detail/greedy_order.hpp"

#include <algorithm>
#include <numeric>
#include <queue>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/random.hpp"
#include "remat/treewidth/detail/adjacency.hpp"
#include "remat/treewidth/detail/stop_poll.hpp"

namespace remat::detail {

namespace eliminating {

/// Pairs of neighbours of each vertex that are not joined; meaningless where `poll` stopped the count. O(edges ·
/// √edges) time.
inline std::vector<std::uint64_t> fill_counts(const undirected_graph& g, polling::stop_poll& poll) {
  const std::size_t n = g.num_vertices();
  std::vector<std::uint64_t> fill(n);
  std::vector<std::uint32_t> place(n), by_degree(n);
  std::iota(by_degree.begin(), by_degree.end(), 0U);
  std::stable_sort(by_degree.begin(), by_degree.end(), [&](auto a, auto b) { return g.degree(a) > g.degree(b); });
  for (std::uint32_t i = 0; i < n; ++i) place[by_degree[i]] = i;
  for (std::uint32_t v = 0; v < n; ++v)
    fill[v] = g.degree(v) == 0 ? 0 : static_cast<std::uint64_t>(g.degree(v)) * (g.degree(v) - 1) / 2;
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
      : g_(g), options_(options), random_(options.seed), poll_(options.stop), adjacency_(g) {}

  std::vector<std::uint32_t> run() {
    begin();
    const auto n = static_cast<std::uint32_t>(g_.num_vertices());
    std::vector<std::uint32_t> order, around;
    order.reserve(n);
    std::uint32_t width = 0;
    while (order.size() < n && !poll_.stopped()) {
      const entry top = queue_.top();
      queue_.pop();
      const std::uint32_t v = top.vertex;
      if (gone_[v] || top.version != version_[v]) continue;
      width = std::max(width, adjacency_.degree(v));
      if (width >= options_.give_up) return {};
      if (poll_.count(8 + adjacency_.degree(v) * adjacency_.row_cost(v))) break;
      order.push_back(v);
      gone_[v] = 1;
      if (order.size() + width + 1 >= n) break;  // the other vertices cannot make the order wider
      adjacency_.neighbours(v, around);
      eliminate(v, around);
    }
    if (poll_.stopped() && options_.eliminated == nullptr) return {};
    if (options_.eliminated != nullptr) *options_.eliminated = poll_.stopped() ? order.size() : n;
    append_rest(order);
    return order;
  }

 private:
  struct entry {
    std::uint64_t key;  // from the upper bits down: rank, score, a random number that breaks ties
    std::uint32_t vertex, version;
    bool operator<(const entry& other) const noexcept {
      return key != other.key ? key > other.key : vertex > other.vertex;
    }
  };

  void begin() {
    const auto n = static_cast<std::uint32_t>(g_.num_vertices());
    if (counts_fill()) fill_ = fill_counts(g_, poll_);
    version_.assign(n, 0);
    gone_.assign(n, 0);
    touched_.assign(n, 0);
    for (std::uint32_t v = 0; v < n; ++v) push(v);
  }

  [[nodiscard]] bool counts_fill() const noexcept { return options_.rule != elimination_rule::min_degree; }

  /// Appends the vertices that are left, by rank.
  void append_rest(std::vector<std::uint32_t>& order) const {
    std::vector<std::uint32_t> rest;
    for (std::uint32_t v = 0; v < gone_.size(); ++v)
      if (!gone_[v]) rest.push_back(v);
    if (!options_.rank.empty())
      std::stable_sort(rest.begin(), rest.end(), [&](auto a, auto b) { return options_.rank[a] < options_.rank[b]; });
    order.insert(order.end(), rest.begin(), rest.end());
  }

  void eliminate(std::uint32_t v, const std::vector<std::uint32_t>& around) {
    if (!counts_fill()) {
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
    constexpr std::uint64_t most = (std::uint64_t{1} << 32U) - 1;
    const std::uint64_t rank = options_.rank.empty() ? 0 : options_.rank[v];
    queue_.push({rank << 48U | std::min(score, most) << 16U | random_.next() >> 48U, v, ++version_[v]});
  }

  void touch(std::uint32_t u) {
    if (touched_[u]) return;
    touched_[u] = 1;
    changed_.push_back(u);
  }

  void eliminate_counting(std::uint32_t v, const std::vector<std::uint32_t>& around) {
    const std::uint32_t d = adjacency_.degree(v);
    // v is a common neighbour of every pair; its own fill changes, but does not matter any more.
    if (fill_[v] != 0) {
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
    }
    // The neighbours are a clique now. Removing v removes the pairs of v and a vertex outside of the clique.
    for (const std::uint32_t u : around) {
      fill_[u] -= adjacency_.degree(u) - d;
      touch(u);
    }
    adjacency_.remove(v, around);
    touched_[v] = 0;
    std::erase(changed_, v);
  }

  const undirected_graph& g_;
  greedy_options options_;
  random_source random_;
  polling::stop_poll poll_;
  Adjacency adjacency_;
  std::vector<std::uint64_t> fill_;
  std::vector<std::uint32_t> version_, changed_;
  std::vector<std::uint8_t> gone_, touched_;
  std::priority_queue<entry> queue_;
};

/// Most vertices of a graph for which a matrix of bits is used: 32 MB.
inline constexpr std::size_t most_dense = 16384;

REMAT_INLINE std::vector<std::uint32_t> greedy_order(const undirected_graph& g, const greedy_options& options) {
  if (g.num_vertices() == 0) return {};
  if (g.num_vertices() <= most_dense) return greedy<dense_adjacency>(g, options).run();
  return greedy<sparse_adjacency>(g, options).run();
}

}  // namespace eliminating

}  // namespace remat::detail
