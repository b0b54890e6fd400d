// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "remat/treewidth/undirected_graph.hpp"

namespace remat::detail::eliminating {

/// A graph from which vertices are eliminated, as a matrix of bits: n²/8 bytes. A pass over a row handles 64 vertices
/// at a time.
class dense_adjacency {
 public:
  explicit dense_adjacency(const undirected_graph& g)
      : words_((g.num_vertices() + 63) / 64), bits_(words_ * g.num_vertices(), 0), degree_(g.num_vertices()) {
    for (std::uint32_t v = 0; v < g.num_vertices(); ++v) {
      degree_[v] = static_cast<std::uint32_t>(g.degree(v));
      for (const std::uint32_t u : g.neighbours(v)) row(v)[u / 64] |= std::uint64_t{1} << (u % 64);
    }
  }
  [[nodiscard]] std::uint32_t degree(std::uint32_t v) const noexcept { return degree_[v]; }
  /// Elementary steps of a pass over the row of a vertex.
  [[nodiscard]] std::uint64_t row_cost(std::uint32_t) const noexcept { return words_; }
  [[nodiscard]] bool adjacent(std::uint32_t u, std::uint32_t v) const noexcept {
    return (row(u)[v / 64] >> (v % 64) & 1U) != 0;
  }
  void neighbours(std::uint32_t v, std::vector<std::uint32_t>& out) const {
    out.clear();
    const std::uint64_t* r = row(v);
    for (std::size_t w = 0; w < words_; ++w)
      for (std::uint64_t bits = r[w]; bits != 0; bits &= bits - 1)
        out.push_back(static_cast<std::uint32_t>(64 * w + static_cast<unsigned>(std::countr_zero(bits))));
  }
  /// Adds the missing edge (u, v), and calls f(w) for each common neighbour w of u and v.
  template <class F>
  void connect(std::uint32_t u, std::uint32_t v, F&& f) {
    std::uint64_t *x = row(u), *y = row(v);
    for (std::size_t w = 0; w < words_; ++w)
      for (std::uint64_t bits = x[w] & y[w]; bits != 0; bits &= bits - 1)
        f(static_cast<std::uint32_t>(64 * w + static_cast<unsigned>(std::countr_zero(bits))));
    x[v / 64] |= std::uint64_t{1} << (v % 64);
    y[u / 64] |= std::uint64_t{1} << (u % 64);
    ++degree_[u];
    ++degree_[v];
  }
  /// Eliminates v: removes it, and makes its neighbours `around` a clique.
  void eliminate(std::uint32_t v, const std::vector<std::uint32_t>& around) {
    const std::uint64_t* gone = row(v);
    for (const std::uint32_t u : around) {
      std::uint64_t* r = row(u);
      std::size_t count = 0;
      for (std::size_t w = 0; w < words_; ++w) r[w] |= gone[w];
      r[v / 64] &= ~(std::uint64_t{1} << (v % 64));
      r[u / 64] &= ~(std::uint64_t{1} << (u % 64));
      for (std::size_t w = 0; w < words_; ++w) count += static_cast<std::size_t>(std::popcount(r[w]));
      degree_[u] = static_cast<std::uint32_t>(count);
    }
  }
  /// Removes v from the rows of its neighbours `around`.
  void remove(std::uint32_t v, const std::vector<std::uint32_t>& around) {
    for (const std::uint32_t u : around) {
      row(u)[v / 64] &= ~(std::uint64_t{1} << (v % 64));
      --degree_[u];
    }
  }

 private:
  [[nodiscard]] std::uint64_t* row(std::uint32_t v) noexcept { return bits_.data() + words_ * v; }
  [[nodiscard]] const std::uint64_t* row(std::uint32_t v) const noexcept { return bits_.data() + words_ * v; }

  std::size_t words_;
  std::vector<std::uint64_t> bits_;
  std::vector<std::uint32_t> degree_;
};

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
    auto& few = rows_[u];
    auto& many = rows_[v];
    if (few.size() * 16 < many.size()) {
      auto at = many.begin();
      for (const std::uint32_t x : few) {
        at = std::lower_bound(at, many.end(), x);
        if (at != many.end() && *at == x) f(x);
      }
    } else {
      auto b = many.begin();
      for (const std::uint32_t x : few) {
        while (b != many.end() && *b < x) ++b;
        if (b == many.end()) break;
        if (*b == x) f(x);
      }
    }
    few.insert(std::lower_bound(few.begin(), few.end(), v), v);
    many.insert(std::lower_bound(many.begin(), many.end(), u), u);
  }
  void eliminate(std::uint32_t v, const std::vector<std::uint32_t>& around) {
    for (const std::uint32_t u : around) {
      std::vector<std::uint32_t>& row = rows_[u];
      if (around.size() * 16 < row.size()) {  // a few into many
        row.erase(std::lower_bound(row.begin(), row.end(), v));
        for (const std::uint32_t w : around)
          if (const auto at = std::lower_bound(row.begin(), row.end(), w); w != u && (at == row.end() || *at != w))
            row.insert(at, w);
        continue;
      }
      merged_.clear();
      std::set_union(row.begin(), row.end(), around.begin(), around.end(), std::back_inserter(merged_));
      std::erase_if(merged_, [&](std::uint32_t x) { return x == u || x == v; });
      row = merged_;
    }
    rows_[v] = {};
  }
  void remove(std::uint32_t v, const std::vector<std::uint32_t>& around) {
    for (const std::uint32_t u : around) rows_[u].erase(std::lower_bound(rows_[u].begin(), rows_[u].end(), v));
    rows_[v] = {};
  }

 private:
  std::vector<std::vector<std::uint32_t>> rows_;
  std::vector<std::uint32_t> merged_;
};

}  // namespace remat::detail::eliminating
