// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/random.hpp"
#include "remat/treewidth/stop_poll.hpp"
#include "remat/treewidth/undirected_graph.hpp"

namespace remat {

/// Elimination orders: a vertex is taken out and its neighbours are made a clique, until none is left. The largest
/// number of neighbours that a vertex has when it goes is the order's width, and the least width of any order is the
/// treewidth.

/// What the next vertex to be eliminated has least of.
enum class elimination_rule : std::uint8_t {
  min_degree,       ///< neighbours
  min_fill,         ///< edges that eliminating it adds
  fill_and_degree,  ///< both added up
  sparsest          ///< added edges in proportion to the square of the neighbours
};

namespace detail::eliminating {

inline constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

/// The graph that elimination works on, as a matrix of bits: n²/8 bytes.
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
  /// Adds an edge that is not there; `f` gets each vertex that both ends are joined to.
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
  /// Takes v, whose neighbours are `around`, out, and makes them a clique.
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
  /// Takes v out of the rows of its neighbours `around`.
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

/// The same as lists, ascending: for large graphs that stay sparse.
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

/// Pairs of neighbours of each vertex that are not joined; meaningless where `poll` stopped the count. O(edges ·
/// √edges) time.
inline std::vector<std::uint64_t> fill_counts(const undirected_graph& g, polling::stop_poll& poll) {
  const std::size_t n = g.num_vertices();
  std::vector<std::uint64_t> fill(n);
  std::vector<std::uint32_t> place(n), by_degree(n);
  std::iota(by_degree.begin(), by_degree.end(), 0U);
  std::stable_sort(by_degree.begin(), by_degree.end(), [&](auto a, auto b) { return g.degree(a) > g.degree(b); });
  for (std::uint32_t i = 0; i < n; ++i) place[by_degree[i]] = i;
  for (std::uint32_t v = 0; v < n; ++v) fill[v] = static_cast<std::uint64_t>(g.degree(v)) * (g.degree(v) - 1) / 2;
  for (std::uint32_t v = 0; v < n; ++v)
    if (g.degree(v) == 0) fill[v] = 0;
  // Every triangle is met once, at its end of the least degree.
  std::vector<std::uint32_t> mark(n, none), first;
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

struct greedy_options {
  elimination_rule rule = elimination_rule::min_fill;
  std::uint64_t seed = 0;                 ///< of ties
  std::span<const std::uint32_t> rank{};  ///< of each vertex, below 65536: lower ones go first; empty: all the same
  std::uint32_t give_up = none;           ///< ends as soon as the width reaches this
  const std::function<bool()>* stop = nullptr;  ///< asked from time to time; true ends it
  /// Where given, a stop leaves the vertices that are left in any order, and this is the number of vertices before
  /// them.
  std::size_t* eliminated = nullptr;
};

/// Eliminates by a rule. Empty where it gave up or was stopped.
template <class Adjacency>
class greedy {
 public:
  greedy(const undirected_graph& g, const greedy_options& options)
      : g_(g), options_(options), random_(options.seed), poll_(options.stop), adjacency_(g) {}

  std::vector<std::uint32_t> run() {
    const auto n = static_cast<std::uint32_t>(g_.num_vertices());
    const bool counts_fill = options_.rule != elimination_rule::min_degree;
    if (counts_fill) fill_ = fill_counts(g_, poll_);
    version_.assign(n, 0);
    gone_.assign(n, 0);
    touched_.assign(n, 0);
    for (std::uint32_t v = 0; v < n; ++v) push(v);
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
      adjacency_.neighbours(v, around);
      if (order.size() + width + 1 >= n) break;  // what is left cannot make it wider
      if (counts_fill)
        eliminate_counting(v, around);
      else
        adjacency_.eliminate(v, around);
      if (counts_fill) {
        for (const std::uint32_t u : changed_) {
          touched_[u] = 0;
          push(u);
        }
        changed_.clear();
      } else {
        for (const std::uint32_t u : around) push(u);
      }
    }
    if (poll_.stopped() && options_.eliminated == nullptr) return {};
    if (options_.eliminated != nullptr) *options_.eliminated = poll_.stopped() ? order.size() : n;
    if (order.size() < n) {
      // By rank all the same.
      std::vector<std::uint32_t> rest;
      for (std::uint32_t v = 0; v < n; ++v)
        if (!gone_[v]) rest.push_back(v);
      if (!options_.rank.empty())
        std::stable_sort(rest.begin(), rest.end(), [&](auto a, auto b) { return options_.rank[a] < options_.rank[b]; });
      order.insert(order.end(), rest.begin(), rest.end());
    }
    return order;
  }

 private:
  struct entry {
    std::uint64_t key;  // rank, score, a random tie
    std::uint32_t vertex, version;
    bool operator<(const entry& other) const noexcept {
      return key != other.key ? key > other.key : vertex > other.vertex;
    }
  };

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
    // v is joined to all of them: as a common neighbour it would lose what it does not matter any more.
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
    // The neighbours are a clique now; with v go the pairs of v and a vertex outside of it.
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

inline std::vector<std::uint32_t> greedy_order(const undirected_graph& g, const greedy_options& options) {
  if (g.num_vertices() == 0) return {};
  if (g.num_vertices() <= most_dense) return greedy<dense_adjacency>(g, options).run();
  return greedy<sparse_adjacency>(g, options).run();
}

}  // namespace detail::eliminating

/// The order that a greedy rule gives; ties are broken at random by `seed`. When so few vertices are left that they
/// cannot make it wider, they follow as they come.
///
/// Degrees and fill are kept up to date, nothing is counted again. With L = log(vertices), time O((vertices + fill) ·
/// largest degree + updates · L), where a matrix of bits (up to 16384 vertices) handles 64 neighbours at a time.
[[nodiscard]] inline std::vector<std::uint32_t> elimination_order(const undirected_graph& g,
                                                                  elimination_rule rule = elimination_rule::min_fill,
                                                                  std::uint64_t seed = 0) {
  detail::eliminating::greedy_options options;
  options.rule = rule;
  options.seed = seed;
  return detail::eliminating::greedy_order(g, options);
}

/// Maximum cardinality search (Tarjan and Yannakakis \cite tarjan1984chordal): the vertex with the most neighbours
/// among those visited is visited next; the order is the visits backwards. Of a chordal graph it adds no edge.
/// O(vertices + edges) time.
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

/// The width of an elimination order, from the elimination tree and the leaves of its row subtrees, without filling
/// (Gilbert, Ng and Peyton \cite gilbert1994counts). `width_at` ≠ null: of each position, the neighbours left then.
/// O(vertices + edges · α) time. Precondition: `order` is a permutation of the vertices.
[[nodiscard]] inline std::uint32_t elimination_width(const undirected_graph& g, std::span<const std::uint32_t> order,
                                                     std::vector<std::uint32_t>* width_at = nullptr) {
  using detail::eliminating::none;
  const auto n = static_cast<std::uint32_t>(g.num_vertices());
  std::vector<std::uint32_t> position(n), parent(n, none), ancestor(n, none), post;
  for (std::uint32_t i = 0; i < n; ++i) position[order[i]] = i;
  for (std::uint32_t i = 0; i < n; ++i)
    for (const std::uint32_t u : g.neighbours(order[i])) {
      std::uint32_t r = position[u];
      if (r >= i) continue;
      while (ancestor[r] != none && ancestor[r] != i) r = std::exchange(ancestor[r], i);
      if (ancestor[r] == none) ancestor[r] = parent[r] = i;
    }
  // Children before their parents, each subtree in one piece.
  std::vector<std::uint32_t> first_child(n, none), sibling(n, none), stack;
  for (std::uint32_t i = n; i-- > 0;)
    if (parent[i] != none) {
      sibling[i] = first_child[parent[i]];
      first_child[parent[i]] = i;
    }
  post.reserve(n);
  for (std::uint32_t r = 0; r < n; ++r) {
    if (parent[r] != none) continue;
    stack.push_back(r);
    while (!stack.empty()) {
      const std::uint32_t v = stack.back();
      if (first_child[v] != none) {
        stack.push_back(first_child[v]);
        first_child[v] = none;
        continue;
      }
      stack.pop_back();
      post.push_back(v);
      if (!stack.empty() && parent[v] == stack.back()) first_child[stack.back()] = sibling[v];
    }
  }
  std::vector<std::int64_t> count(n, 0);
  std::vector<std::uint32_t> first(n, none), last_leaf(n, none);
  for (std::uint32_t k = 0; k < n; ++k) {
    count[post[k]] = first[post[k]] == none ? 1 : 0;
    for (std::uint32_t v = post[k]; v != none && first[v] == none; v = parent[v]) first[v] = k;
  }
  for (std::uint32_t v = 0; v < n; ++v) ancestor[v] = v;
  const auto find = [&](std::uint32_t v) {
    while (ancestor[v] != v) v = ancestor[v] = ancestor[ancestor[v]];
    return v;
  };
  std::vector<std::uint32_t> last_first(n, none);  // of a row: the largest `first` of its columns so far
  for (std::uint32_t k = 0; k < n; ++k) {
    const std::uint32_t j = post[k];
    if (parent[j] != none) --count[parent[j]];
    for (const std::uint32_t u : g.neighbours(order[j])) {
      const std::uint32_t i = position[u];
      if (i <= j || (last_first[i] != none && first[j] <= last_first[i])) continue;
      last_first[i] = first[j];
      ++count[j];
      if (last_leaf[i] != none) --count[find(last_leaf[i])];
      last_leaf[i] = j;
    }
    if (parent[j] != none) ancestor[j] = parent[j];
  }
  std::int64_t width = 0;
  if (width_at != nullptr) width_at->assign(n, 0);
  for (std::uint32_t i = 0; i < n; ++i) {  // parents have larger positions
    if (parent[i] != none) count[parent[i]] += count[i];
    width = std::max(width, count[i] - 1);
    if (width_at != nullptr) (*width_at)[i] = static_cast<std::uint32_t>(count[i] - 1);
  }
  return static_cast<std::uint32_t>(width);
}

}  // namespace remat
