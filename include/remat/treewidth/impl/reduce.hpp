// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/detail/reduce.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/treewidth/detail/adjacency.hpp"
#include "remat/treewidth/detail/stop_poll.hpp"

namespace remat::detail {

namespace reducing {

class reducer {
 public:
  reducer(const undirected_graph& g, std::uint32_t lower_bound, const std::function<bool()>* stop)
      : g_(g),
        n_(static_cast<std::uint32_t>(g.num_vertices())),
        low_(lower_bound),
        poll_(stop),
        graph_(g),
        gone_(n_, 0),
        queued_(n_, 1) {
    for (std::uint32_t v = 0; v < n_; ++v) queue_.push_back(v);
  }

  reduced_graph run() {
    reduced_graph out;
    while (!queue_.empty() && !poll_.stopped()) {
      if (n_ - order_.size() <= std::size_t{low_} + 1) {
        take_all();
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
        const std::vector<std::uint32_t> others = cube(v);
        if (!others.empty()) {
          take(v);
          for (const std::uint32_t u : others) {
            graph_.neighbours(u, around_);
            take(u);
          }
        }
      }
    }
    out.eliminated = std::move(order_);
    out.lower_bound = low_;
    if (out.eliminated.empty()) {
      out.vertices.resize(n_);
      std::iota(out.vertices.begin(), out.vertices.end(), 0U);
      out.rest = g_;
      return out;
    }
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
  /// Simplicial; or almost so, or a buddy, and of a degree that the treewidth has anyway.
  bool safe(std::uint32_t v) {
    const std::size_t d = around_.size();
    // The first two that are not joined: if one vertex is in all such pairs, it is one of them.
    std::uint32_t a = undirected_graph::none, b = undirected_graph::none;
    for (std::size_t i = 0; i < d && a == undirected_graph::none; ++i) {
      if (poll_.count(8 * (d - i))) return false;
      for (std::size_t j = i + 1; j < d; ++j)
        if (!graph_.adjacent(around_[i], around_[j])) {
          a = around_[i];
          b = around_[j];
          break;
        }
    }
    if (a == undirected_graph::none) {  // islet, twig, simplicial
      low_ = std::max(low_, static_cast<std::uint32_t>(d));
      return true;
    }
    if (d > low_) return false;
    for (const std::uint32_t special : {a, b}) {  // series, almost simplicial
      bool clique = true;
      for (std::size_t i = 0; i < d && clique; ++i) {
        if (poll_.count(8 * (d - i))) return false;
        for (std::size_t j = i + 1; j < d && clique; ++j)
          clique = around_[i] == special || around_[j] == special || graph_.adjacent(around_[i], around_[j]);
      }
      if (clique) return true;
    }
    if (d == 3) {  // buddy: another vertex with the same three neighbours
      graph_.neighbours(around_[0], second_);
      for (const std::uint32_t u : second_)
        if (u != v && graph_.degree(u) == 3 && graph_.adjacent(u, around_[1]) && graph_.adjacent(u, around_[2]))
          return true;
    }
    return false;
  }

  /// Three vertices of degree three that have one neighbour in common, and each two of them one more: v and those that
  /// are returned.
  std::vector<std::uint32_t> cube(std::uint32_t v) {
    for (std::size_t i = 0; i < 3; ++i) {
      const std::uint32_t middle = around_[i], a = around_[(i + 1) % 3], b = around_[(i + 2) % 3];
      graph_.neighbours(a, second_);
      graph_.neighbours(b, third_);
      for (const std::uint32_t x : second_) {
        if (x == v || graph_.degree(x) != 3 || !graph_.adjacent(x, middle) || x == middle || graph_.adjacent(x, b))
          continue;
        graph_.neighbours(x, row_);
        std::uint32_t c = undirected_graph::none;
        for (const std::uint32_t u : row_)
          if (u != middle && u != a) c = u;
        if (c == v || c == b || c == undirected_graph::none) continue;
        for (const std::uint32_t y : third_)
          if (y != v && y != x && y != middle && y != c && graph_.degree(y) == 3 && graph_.adjacent(y, middle) &&
              graph_.adjacent(y, c))
            return {x, y};
      }
    }
    return {};
  }

  void take(std::uint32_t v) {
    order_.push_back(v);
    gone_[v] = 1;
    for (std::size_t i = 0; i < around_.size(); ++i)
      for (std::size_t j = 0; j < i; ++j)
        if (!graph_.adjacent(around_[i], around_[j]))
          graph_.connect(around_[i], around_[j], [&](std::uint32_t w) { again(w); });
    graph_.remove(v, around_);
    for (const std::uint32_t u : around_) {
      again(u);
      if (graph_.degree(u) <= 3) {  // its neighbours may have become buddies
        graph_.neighbours(u, second_);
        for (const std::uint32_t w : second_) again(w);
      }
    }
  }
  /// So few vertices are left that any order of them is no wider than the bound.
  void take_all() {
    for (std::uint32_t v = 0; v < n_; ++v)
      if (!gone_[v]) {
        order_.push_back(v);
        gone_[v] = 1;
      }
  }
  void again(std::uint32_t v) {
    if (gone_[v] || queued_[v]) return;
    queued_[v] = 1;
    queue_.push_back(v);
  }

  const undirected_graph& g_;
  std::uint32_t n_, low_;
  polling::stop_poll poll_;
  detail::eliminating::sparse_adjacency graph_;
  std::vector<std::uint8_t> gone_, queued_;
  std::vector<std::uint32_t> queue_, order_, around_, second_, third_, row_;
};

}  // namespace reducing

REMAT_INLINE std::vector<std::uint32_t> reduced_graph::lift(std::span<const std::uint32_t> order) const {
  std::vector<std::uint32_t> out(eliminated);
  for (const std::uint32_t v : order) out.push_back(vertices[v]);
  return out;
}

REMAT_INLINE reduced_graph reduce(const undirected_graph& g, std::uint32_t lower_bound,
                                  const std::function<bool()>* stop) {
  return detail::reducing::reducer(g, lower_bound, stop).run();
}

}  // namespace remat::detail
