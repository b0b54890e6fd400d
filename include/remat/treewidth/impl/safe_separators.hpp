// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/detail/safe_separators.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/treewidth/detail/elimination_order.hpp"

namespace remat::detail {

namespace minimal_filling {

/// A filled graph: a graph with the edges that make each bag of a tree decomposition a clique. Removes fill edges,
/// those that the graph itself lacks, as long as the filled graph stays chordal.
class filled_graph {
 public:
  filled_graph(const undirected_graph& g, const tree_decomposition& t)
      : graph_(g),
        n_(static_cast<std::uint32_t>(g.num_vertices())),
        words_((n_ + 63) / 64),
        filled_(words_ * n_, 0),
        queued_(words_ * n_, 0),
        common_(words_) {
    for (std::size_t b = 0; b < t.size(); ++b)
      for (const std::uint32_t u : t.bags[b])
        for (const std::uint32_t v : t.bags[b])
          if (u != v) word(filled_, u, v) |= bit(v);
  }

  /// Removes fill edges until none can go, or `stop` says so. Returns true if it removed one.
  bool reduce(const std::function<bool()>* stop) {
    detail::polling::stop_poll poll(stop);
    for_each_edge([&](std::uint32_t u, std::uint32_t v) { enqueue(u, v); });
    bool removed = false;
    while (!open_.empty()) {
      const auto [u, v] = open_.back();
      open_.pop_back();
      word(queued_, u, v) &= ~bit(v);
      if ((word(filled_, u, v) & bit(v)) == 0) continue;
      if (poll.count(2 * words_)) break;
      find_common(u, v);
      if (!common_is_clique(poll)) continue;
      removed = true;
      word(filled_, u, v) &= ~bit(v);
      word(filled_, v, u) &= ~bit(u);
      for (const std::uint32_t w : members_) {
        enqueue(u, w);
        enqueue(v, w);
      }
    }
    return removed;
  }

  [[nodiscard]] undirected_graph graph() const {
    std::vector<undirected_graph::edge> edges;
    for_each_edge([&](std::uint32_t u, std::uint32_t v) { edges.emplace_back(u, v); });
    return {n_, edges};
  }

 private:
  [[nodiscard]] static std::uint64_t bit(std::uint32_t v) { return std::uint64_t{1} << (v % 64); }
  /// The word of row u that holds the bit of v.
  [[nodiscard]] std::uint64_t& word(std::vector<std::uint64_t>& rows, std::uint32_t u, std::uint32_t v) const {
    return rows[words_ * u + v / 64];
  }

  /// Calls `visit` for the vertices whose bits are set in word w of a row, ascending.
  template <class Visit>
  static void for_each_bit(std::uint64_t bits, std::size_t w, const Visit& visit) {
    for (; bits != 0; bits &= bits - 1)
      visit(static_cast<std::uint32_t>(64 * w + static_cast<unsigned>(std::countr_zero(bits))));
  }

  /// Calls `visit(u, v)` for each edge of the filled graph, with u < v.
  template <class Visit>
  void for_each_edge(const Visit& visit) const {
    for (std::uint32_t u = 0; u < n_; ++u)
      for (std::size_t w = 0; w < words_; ++w)
        for_each_bit(filled_[words_ * u + w], w, [&](std::uint32_t v) {
          if (u < v) visit(u, v);
        });
  }

  /// Puts {u, v} among the edges to look at, unless it is there or the graph has it.
  void enqueue(std::uint32_t u, std::uint32_t v) {
    if (u > v) std::swap(u, v);
    if ((word(queued_, u, v) & bit(v)) != 0 || graph_.adjacent(u, v)) return;
    word(queued_, u, v) |= bit(v);
    open_.emplace_back(u, v);
  }

  /// Finds the common neighbours of u and v.
  void find_common(std::uint32_t u, std::uint32_t v) {
    members_.clear();
    for (std::size_t w = 0; w < words_; ++w) {
      common_[w] = filled_[words_ * u + w] & filled_[words_ * v + w];
      for_each_bit(common_[w], w, [&](std::uint32_t x) { members_.push_back(x); });
    }
  }

  /// True when the common neighbours are a clique: then the filled graph stays chordal without the edge.
  [[nodiscard]] bool common_is_clique(detail::polling::stop_poll& poll) const {
    for (const std::uint32_t x : members_) {
      (void)poll.count(words_);
      const std::uint64_t* row = filled_.data() + words_ * x;
      for (std::size_t w = 0; w < words_; ++w) {
        std::uint64_t left = common_[w] & ~row[w];
        if (w == x / 64) left &= ~bit(x);
        if (left != 0) return false;
      }
    }
    return true;
  }

  const undirected_graph& graph_;
  std::uint32_t n_;
  std::size_t words_;  // of a row
  // Adjacency matrices, one row of bits for each vertex; of `queued_` the upper half.
  std::vector<std::uint64_t> filled_, queued_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> open_;  // edges to look at
  std::vector<std::uint64_t> common_;                          // the common neighbours of the last edge, as a row
  std::vector<std::uint32_t> members_;                         // the same, as a list
};

}  // namespace minimal_filling

REMAT_INLINE tree_decomposition minimal_decomposition(const undirected_graph& g, const tree_decomposition& t,
                                                      const std::function<bool()>* stop) {
  detail::minimal_filling::filled_graph filled(g, t);
  if (!filled.reduce(stop)) return t;
  const undirected_graph chordal = filled.graph();
  return decomposition_of(chordal, maximum_cardinality_order(chordal));
}

REMAT_INLINE bool safe_separator_test::almost_clique(std::span<const std::uint32_t> separator) {
  std::uint32_t a = undirected_graph::none, b = undirected_graph::none;
  bool only_a = true, only_b = true;
  for (std::size_t i = 0; i < separator.size(); ++i) {
    if (poll_.count(8 * (separator.size() - i))) return false;
    for (std::size_t j = i + 1; j < separator.size(); ++j) {
      if (g_.adjacent(separator[i], separator[j])) continue;
      if (a == undirected_graph::none) {
        a = separator[i];
        b = separator[j];
      }
      only_a = only_a && (separator[i] == a || separator[j] == a);
      only_b = only_b && (separator[i] == b || separator[j] == b);
      if (!only_a && !only_b) return false;
    }
  }
  return true;
}

REMAT_INLINE bool safe_separator_test::clique_minor(std::span<const std::uint32_t> separator) {
  constexpr std::uint32_t in_separator = undirected_graph::none;
  std::fill(part_.begin(), part_.end(), 0U);
  for (const std::uint32_t v : separator) part_[v] = in_separator;
  std::uint32_t parts = 0;
  for (std::uint32_t v = 0; v < part_.size(); ++v) {
    if (part_[v] != 0) continue;
    part_[v] = ++parts;
    queue_.assign(1, v);
    for (std::size_t i = 0; i < queue_.size(); ++i)
      for (const std::uint32_t u : g_.neighbours(queue_[i]))
        if (part_[u] == 0) {
          part_[u] = parts;
          queue_.push_back(u);
        }
  }
  if (parts < 2) return false;
  for (std::uint32_t without = 1; without <= parts; ++without)
    if (!contract(separator, without)) return false;
  return true;
}

REMAT_INLINE bool safe_separator_test::contract(std::span<const std::uint32_t> s, std::uint32_t without) {
  const std::size_t k = s.size();
  joined_.assign(k * k, 0);
  std::fill(used_.begin(), used_.end(), std::uint8_t{0});
  for (std::size_t i = 0; i < k; ++i)
    for (std::size_t j = 0; j < k; ++j) joined_[i * k + j] = i == j || g_.adjacent(s[i], s[j]);
  for (std::size_t i = 0; i < k; ++i)
    for (std::size_t j = i + 1; j < k; ++j) {
      if (joined_[i * k + j]) continue;
      if (poll_.count(2 * k)) return false;
      // The end that lacks more takes the path.
      std::size_t from = i, to = j;
      if (std::count(joined_.begin() + static_cast<std::ptrdiff_t>(j * k),
                     joined_.begin() + static_cast<std::ptrdiff_t>(j * k + k),
                     0) > std::count(joined_.begin() + static_cast<std::ptrdiff_t>(i * k),
                                     joined_.begin() + static_cast<std::ptrdiff_t>(i * k + k), 0))
        std::swap(from, to);
      if (!path(s, from, s[to], without)) return false;
      for (std::size_t x = 0; x < k; ++x) {
        if (joined_[from * k + x]) continue;
        (void)poll_.count(8 * path_.size());
        for (const std::uint32_t v : path_)
          if (g_.adjacent(v, s[x])) {
            joined_[from * k + x] = joined_[x * k + from] = 1;
            break;
          }
      }
      if (!joined_[from * k + to]) return false;
    }
  return true;
}

REMAT_INLINE bool safe_separator_test::path(std::span<const std::uint32_t> s, std::size_t from, std::uint32_t to,
                                            std::uint32_t without) {
  constexpr std::uint32_t in_separator = undirected_graph::none;
  ++stamp_;
  seen_.resize(part_.size(), 0);
  queue_.clear();
  path_.clear();
  const auto owner = static_cast<std::uint8_t>(1);
  const auto reach = [&](std::uint32_t u, std::uint32_t v) {
    if (part_[u] == in_separator || part_[u] == without || used_[u] == owner || seen_[u] == stamp_) return;
    seen_[u] = stamp_;
    before_[u] = v;
    queue_.push_back(u);
  };
  for (const std::uint32_t u : g_.neighbours(s[from])) reach(u, undirected_graph::none);
  for (std::size_t i = 0; i < queue_.size(); ++i) {
    const std::uint32_t v = queue_[i];
    if (poll_.count(8 + g_.degree(v))) return false;
    if (g_.adjacent(v, to)) {
      for (std::uint32_t x = v; x != undirected_graph::none; x = before_[x]) {
        path_.push_back(x);
        used_[x] = owner;
      }
      return true;
    }
    for (const std::uint32_t u : g_.neighbours(v)) reach(u, v);
  }
  return false;
}

REMAT_INLINE torso torso_of(const undirected_graph& g, const tree_decomposition& t, const index_rows& links,
                            std::span<const std::uint32_t> chosen, std::vector<std::uint32_t>& number) {
  torso out;
  std::vector<std::uint32_t> sorted(chosen.begin(), chosen.end()), shared;
  std::sort(sorted.begin(), sorted.end());
  for (const std::uint32_t b : sorted)
    for (const std::uint32_t v : t.bags[b])
      if (number[v] == undirected_graph::none) {
        number[v] = 0;
        out.vertices.push_back(v);
      }
  std::sort(out.vertices.begin(), out.vertices.end());
  for (std::uint32_t i = 0; i < out.vertices.size(); ++i) number[out.vertices[i]] = i;
  // Separators overlap: a matrix of bits takes each pair once.
  const std::size_t k = out.vertices.size(), words = (k + 63) / 64;
  std::vector<std::uint64_t> joined(words * k, 0), mask(words);
  const auto bit = [](std::uint32_t v) { return std::uint64_t{1} << (v % 64); };
  for (std::uint32_t i = 0; i < k; ++i)
    for (const std::uint32_t u : g.neighbours(out.vertices[i]))
      if (number[u] != undirected_graph::none) joined[words * i + number[u] / 64] |= bit(number[u]);
  for (std::uint32_t i = 0; i < sorted.size(); ++i) {
    const std::uint32_t b = sorted[i];
    for (const std::uint32_t v : t.bags[b]) out.tree.bags.values.push_back(number[v]);
    out.tree.bags.end_row();
    for (const std::uint32_t c : links[b]) {
      const auto at = std::lower_bound(sorted.begin(), sorted.end(), c);
      if (at != sorted.end() && *at == c) {
        if (c > b) out.tree.edges.emplace_back(i, static_cast<std::uint32_t>(at - sorted.begin()));
        continue;
      }
      shared.clear();
      std::set_intersection(t.bags[b].begin(), t.bags[b].end(), t.bags[c].begin(), t.bags[c].end(),
                            std::back_inserter(shared));
      std::fill(mask.begin(), mask.end(), std::uint64_t{0});
      for (const std::uint32_t v : shared) mask[number[v] / 64] |= bit(number[v]);
      for (const std::uint32_t v : shared)
        for (std::size_t w = 0; w < words; ++w) joined[words * number[v] + w] |= mask[w];
    }
  }
  std::vector<undirected_graph::edge> edges;
  for (std::uint32_t u = 0; u < k; ++u)
    for (std::size_t w = u / 64; w < words; ++w)
      for (std::uint64_t bits = joined[words * u + w]; bits != 0; bits &= bits - 1) {
        const auto v = static_cast<std::uint32_t>(64 * w + static_cast<unsigned>(std::countr_zero(bits)));
        if (u < v) edges.emplace_back(u, v);
      }
  out.graph = undirected_graph(k, edges);
  for (const std::uint32_t v : out.vertices) number[v] = undirected_graph::none;
  return out;
}

}  // namespace remat::detail
