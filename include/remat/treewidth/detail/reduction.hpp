// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "remat/treewidth/detail/adjacency.hpp"
#include "remat/treewidth/detail/stop_poll.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace REMAT_NAMESPACE::detail {

/// A graph from which some vertices have been eliminated, without a change of its treewidth.
struct reduced_graph {
  std::vector<std::uint32_t> eliminated;  ///< vertices of the whole graph, in the order of their elimination
  std::vector<std::uint32_t> vertices;    ///< vertex of `rest` → vertex of the whole graph, ascending
  undirected_graph rest{};                ///< the other vertices, with the edges that elimination added
  std::uint32_t lower_bound = 0;          ///< bound on the treewidth of the whole graph: the given one, or a better one

  /// An elimination order of the whole graph from one of `rest`. Its width is the larger of `lower_bound` and the width
  /// of the given order. O(vertices) time.
  [[nodiscard]] std::vector<std::uint32_t> lift(std::span<const std::uint32_t> order) const {
    std::vector<std::uint32_t> out(eliminated);
    for (const std::uint32_t v : order) out.push_back(vertices[v]);
    return out;
  }
};

namespace reduction {

class reducer {
 public:
  reducer(const undirected_graph& g, std::uint32_t lower_bound, stop_function stop)
      : n_(static_cast<std::uint32_t>(g.num_vertices())),
        low_(lower_bound),
        poll_(stop),
        graph_(g),
        gone_(n_, 0),
        queued_(n_, 0) {
    for (std::uint32_t v = 0; v < n_; ++v) enqueue(v);
  }

  reduced_graph run() {
    while (!queue_.empty() && !poll_.stopped()) {
      if (n_ - order_.size() <= std::size_t{low_} + 1) {  // any order of the vertices that are left is within the bound
        for (std::uint32_t v = 0; v < n_; ++v)
          if (!std::exchange(gone_[v], std::uint8_t{1})) order_.push_back(v);
        break;
      }
      const std::uint32_t v = queue_.back();
      queue_.pop_back();
      queued_[v] = 0;
      if (gone_[v]) continue;
      (void)poll_.count(8);
      graph_.neighbours(v, around_);
      if (safe(v)) {
        take(v);
      } else if (around_.size() == 3 && low_ >= 3) {
        if (const auto others = cube(v)) {
          take(v);
          for (const std::uint32_t u : {others->first, others->second}) {
            graph_.neighbours(u, around_);
            take(u);
          }
        }
      }
    }
    reduced_graph out;
    out.eliminated = std::move(order_);
    out.lower_bound = low_;
    std::vector<std::uint32_t> number(n_, undirected_graph::none);
    std::vector<undirected_graph::edge> edges;
    for (std::uint32_t v = 0; v < n_; ++v)
      if (!gone_[v]) {
        number[v] = static_cast<std::uint32_t>(out.vertices.size());
        out.vertices.push_back(v);
      }
    for (const std::uint32_t v : out.vertices) {
      graph_.neighbours(v, around_);
      for (const std::uint32_t u : around_)
        if (u > v) edges.emplace_back(number[v], number[u]);
    }
    out.rest = undirected_graph(out.vertices.size(), edges);
    return out;
  }

 private:
  static constexpr std::uint32_t none = undirected_graph::none;

  /// The first two of `around_`, but `except`, that are not joined; {none, none} if all are. Nothing after a stop.
  std::optional<undirected_graph::edge> first_gap(std::uint32_t except) {
    const std::size_t d = around_.size();
    for (std::size_t i = 0; i < d; ++i) {
      if (poll_.count(8 * (d - i))) return std::nullopt;
      for (std::size_t j = i + 1; j < d; ++j)
        if (around_[i] != except && around_[j] != except && !graph_.adjacent(around_[i], around_[j]))
          return undirected_graph::edge{around_[i], around_[j]};
    }
    return undirected_graph::edge{none, none};
  }

  /// True when v is simplicial, or when it is almost simplicial or a buddy and the treewidth is at least its degree.
  bool safe(std::uint32_t v) {
    const auto gap = first_gap(none);
    if (!gap) return false;
    const auto d = static_cast<std::uint32_t>(around_.size());
    if (gap->first == none) {  // islet, twig, simplicial
      low_ = std::max(low_, d);
      return true;
    }
    if (d > low_) return false;
    // Series, almost simplicial. If one vertex is in all pairs that are not joined, it is in the first of them.
    for (const std::uint32_t special : {gap->first, gap->second}) {
      const auto other = first_gap(special);
      if (!other) return false;
      if (other->first == none) return true;
    }
    if (d != 3) return false;
    graph_.neighbours(around_[0], second_);  // buddy: another vertex with the same three neighbours
    return std::any_of(second_.begin(), second_.end(), [&](std::uint32_t u) {
      return u != v && graph_.degree(u) == 3 && graph_.adjacent(u, around_[1]) && graph_.adjacent(u, around_[2]);
    });
  }

  /// Two vertices that make a cube with v: the three have degree three, one neighbour in common, and each two of them
  /// one more.
  std::optional<undirected_graph::edge> cube(std::uint32_t v) {
    for (std::size_t i = 0; i < 3; ++i) {
      const std::uint32_t middle = around_[i], a = around_[(i + 1) % 3], b = around_[(i + 2) % 3];
      graph_.neighbours(a, second_);
      graph_.neighbours(b, third_);
      for (const std::uint32_t x : second_) {
        if (x == v || graph_.degree(x) != 3 || !graph_.adjacent(x, middle) || x == middle || graph_.adjacent(x, b))
          continue;
        graph_.neighbours(x, row_);
        const auto c = std::find_if(row_.begin(), row_.end(), [&](auto u) { return u != middle && u != a; });
        if (c == row_.end() || *c == v || *c == b) continue;
        for (const std::uint32_t y : third_)
          if (y != v && y != x && y != middle && y != *c && graph_.degree(y) == 3 && graph_.adjacent(y, middle) &&
              graph_.adjacent(y, *c))
            return undirected_graph::edge{x, y};
      }
    }
    return std::nullopt;
  }

  /// Eliminates v, whose neighbours are `around_`.
  void take(std::uint32_t v) {
    order_.push_back(v);
    gone_[v] = 1;
    for (std::size_t i = 0; i < around_.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (!graph_.adjacent(around_[i], around_[j]))
          graph_.connect(around_[i], around_[j], [&](std::uint32_t w) { enqueue(w); });
    graph_.remove(v, around_);
    for (const std::uint32_t u : around_) {
      enqueue(u);
      if (graph_.degree(u) <= 3) {  // its neighbours may have become buddies
        graph_.neighbours(u, second_);
        for (const std::uint32_t w : second_) enqueue(w);
      }
    }
  }
  void enqueue(std::uint32_t v) {
    if (gone_[v] || queued_[v]) return;
    queued_[v] = 1;
    queue_.push_back(v);
  }

  std::uint32_t n_, low_;
  stop_poll poll_;
  sparse_adjacency graph_;
  std::vector<std::uint8_t> gone_, queued_;
  std::vector<std::uint32_t> queue_, order_, around_, second_, third_, row_;
};

}  // namespace reduction

/// Eliminates vertices with which some order of least width begins, until the rules find no more: islets, twigs and all
/// simplicial vertices; also series and almost simplicial vertices, buddies and cubes, if the treewidth is at least
/// their degree (Bodlaender, Koster and van den Eijkhof \cite bodlaender2005preprocessing). The last `lower_bound` + 1
/// vertices are eliminated in any order.
///
/// `lower_bound` is a proven lower bound on the treewidth; a better one lets more vertices go. The treewidth of g is
/// the larger of the `lower_bound` that is returned and the treewidth of `rest`. `stop` is asked every fraction of a
/// millisecond. Once it answers true, the vertices eliminated so far are returned. O(sum over the vertices looked at of
/// degree² · log degree) time.
[[nodiscard]] inline reduced_graph reduce(const undirected_graph& g, std::uint32_t lower_bound = 0,
                                          stop_function stop = nullptr) {
  return reduction::reducer(g, lower_bound, stop).run();
}

}  // namespace REMAT_NAMESPACE::detail
