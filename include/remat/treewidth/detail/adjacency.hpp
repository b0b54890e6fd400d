// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "remat/treewidth/detail/vertex_set.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace REMAT_NAMESPACE::detail {

/// A graph from which vertices are eliminated, as a matrix of bits: n²/8 bytes. A pass over a row handles 64 vertices
/// at a time.
class dense_adjacency {
 public:
  explicit dense_adjacency(const undirected_graph& g)
      : rows_(g.num_vertices(), g.num_vertices()), degree_(g.num_vertices()) {
    for (std::uint32_t v = 0; v < g.num_vertices(); ++v) {
      degree_[v] = static_cast<std::uint32_t>(g.degree(v));
      for (const std::uint32_t u : g.neighbours(v)) rows_.set(v, u);
    }
  }
  [[nodiscard]] std::uint32_t degree(std::uint32_t v) const noexcept { return degree_[v]; }
  /// Elementary steps of a pass over the row of a vertex.
  [[nodiscard]] std::uint64_t row_cost(std::uint32_t) const noexcept { return rows_.words(); }
  [[nodiscard]] bool adjacent(std::uint32_t u, std::uint32_t v) const noexcept { return rows_.test(u, v); }
  void neighbours(std::uint32_t v, std::vector<std::uint32_t>& out) const {
    out.clear();
    rows_.for_each(v, [&](std::uint32_t u) { out.push_back(u); });
  }
  /// Adds the missing edge (u, v), and calls f(w) for each common neighbour w of u and v.
  template <class F>
  void connect(std::uint32_t u, std::uint32_t v, F&& f) {
    const std::uint64_t *x = rows_[u], *y = rows_[v];
    for_each_bit(
        rows_.words(), [&](std::size_t w) { return x[w] & y[w]; }, f);
    rows_.set(u, v);
    rows_.set(v, u);
    ++degree_[u];
    ++degree_[v];
  }
  /// Eliminates v: removes it, and makes its neighbours `around` a clique.
  void eliminate(std::uint32_t v, const std::vector<std::uint32_t>& around) {
    for (const std::uint32_t u : around) {
      rows_.add(u, rows_[v]);
      rows_.reset(u, v);
      rows_.reset(u, u);
      degree_[u] = rows_.count(u);
    }
  }
  /// Removes v from the rows of its neighbours `around`.
  void remove(std::uint32_t v, const std::vector<std::uint32_t>& around) {
    for (const std::uint32_t u : around) {
      rows_.reset(u, v);
      --degree_[u];
    }
  }

 private:
  bit_matrix rows_;
  std::vector<std::uint32_t> degree_;
};

/// Adds the vertices of `more`, but not `except`, to `row`; both are ascending. If there are few, each is inserted by
/// itself. Otherwise both are merged in `buffer`.
inline void add_to_row(std::vector<std::uint32_t>& row, std::span<const std::uint32_t> more, std::uint32_t except,
                       std::vector<std::uint32_t>& buffer) {
  if (more.size() * 16 < row.size()) {
    for (const std::uint32_t v : more)
      if (const auto at = std::lower_bound(row.begin(), row.end(), v); v != except && (at == row.end() || *at != v))
        row.insert(at, v);
    return;
  }
  if (buffer.size() < row.size() + more.size()) buffer.resize(row.size() + more.size());
  const auto end = std::set_union(row.begin(), row.end(), more.begin(), more.end(), buffer.begin());
  row.assign(buffer.begin(), std::remove(buffer.begin(), end, except));
}

/// The same as ascending lists, for large graphs that stay sparse. A call costs O(degrees of the vertices named).
class sparse_adjacency {
 public:
  explicit sparse_adjacency(const undirected_graph& g) : rows_(g.num_vertices()) {
    for (std::uint32_t v = 0; v < rows_.size(); ++v) rows_[v].assign(g.neighbours(v).begin(), g.neighbours(v).end());
  }
  [[nodiscard]] std::uint32_t degree(std::uint32_t v) const noexcept {
    return static_cast<std::uint32_t>(rows_[v].size());
  }
  [[nodiscard]] std::uint64_t row_cost(std::uint32_t v) const noexcept { return rows_[v].size(); }
  [[nodiscard]] bool adjacent(std::uint32_t u, std::uint32_t v) const noexcept {
    if (rows_[u].size() > rows_[v].size()) std::swap(u, v);
    return std::binary_search(rows_[u].begin(), rows_[u].end(), v);
  }
  void neighbours(std::uint32_t v, std::vector<std::uint32_t>& out) const { out = rows_[v]; }
  template <class F>
  void connect(std::uint32_t u, std::uint32_t v, F&& f) {
    if (rows_[u].size() > rows_[v].size()) std::swap(u, v);
    auto &few = rows_[u], &many = rows_[v];
    auto at = many.begin();
    const bool jump = few.size() * 16 < many.size();
    for (const std::uint32_t x : few) {
      if (jump)
        at = std::lower_bound(at, many.end(), x);
      else
        while (at != many.end() && *at < x) ++at;
      if (at == many.end()) break;
      if (*at == x) f(x);
    }
    few.insert(std::lower_bound(few.begin(), few.end(), v), v);
    many.insert(std::lower_bound(many.begin(), many.end(), u), u);
  }
  void eliminate(std::uint32_t v, const std::vector<std::uint32_t>& around) {
    remove(v, around);
    for (const std::uint32_t u : around) add_to_row(rows_[u], around, u, merged_);
  }
  void remove(std::uint32_t v, const std::vector<std::uint32_t>& around) {
    for (const std::uint32_t u : around) rows_[u].erase(std::lower_bound(rows_[u].begin(), rows_[u].end(), v));
    rows_[v] = {};
  }

 private:
  std::vector<std::vector<std::uint32_t>> rows_;
  std::vector<std::uint32_t> merged_;
};

}  // namespace REMAT_NAMESPACE::detail
