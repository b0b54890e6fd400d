// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/treewidth/detail/elimination_order.hpp"
#include "remat/treewidth/detail/stop_poll.hpp"
#include "remat/treewidth/detail/subgraph.hpp"
#include "remat/treewidth/detail/vertex_set.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace REMAT_NAMESPACE::detail {

namespace safe_separators {

/// The graph on `n` vertices whose rows are those of a symmetric matrix.
[[nodiscard]] inline undirected_graph graph_of(const bit_matrix& rows, std::size_t n) {
  std::vector<undirected_graph::edge> edges;
  for (std::uint32_t u = 0; u < n; ++u)
    rows.for_each(u, [&](std::uint32_t v) {
      if (u < v) edges.emplace_back(u, v);
    });
  return {n, edges};
}

/// A filled graph: a graph with the edges that make each bag of a tree decomposition a clique. Removes fill edges,
/// those that the graph itself lacks, as long as the filled graph stays chordal.
class filled_graph {
 public:
  filled_graph(const undirected_graph& g, const tree_decomposition& t)
      : graph_(g),
        filled_(g.num_vertices(), g.num_vertices()),
        queued_(g.num_vertices(), g.num_vertices()),
        common_(filled_.words()) {
    for (std::size_t b = 0; b < t.size(); ++b)
      for (const std::uint32_t u : t.bags[b])
        for (const std::uint32_t v : t.bags[b])
          if (u != v) filled_.set(u, v);
  }

  /// Removes fill edges until none can go, or until `stop` ends it. Returns true if it removed one.
  bool reduce(stop_function stop) {
    stop_poll poll(stop);
    for (std::uint32_t u = 0; u < graph_.num_vertices(); ++u)
      filled_.for_each(u, [&](std::uint32_t v) {
        if (u < v) enqueue(u, v);
      });
    bool removed = false;
    while (!open_.empty()) {
      const auto [u, v] = open_.back();
      open_.pop_back();
      queued_.reset(u, v);
      if (!filled_.test(u, v)) continue;
      if (poll.count(2 * filled_.words())) break;
      find_common(u, v);
      if (!common_is_clique(poll)) continue;
      removed = true;
      filled_.reset(u, v);
      filled_.reset(v, u);
      for (const std::uint32_t w : members_) {
        enqueue(u, w);
        enqueue(v, w);
      }
    }
    return removed;
  }

  [[nodiscard]] undirected_graph graph() const { return graph_of(filled_, graph_.num_vertices()); }

 private:
  /// Puts {u, v} among the edges to look at, unless it is there or the graph has it.
  void enqueue(std::uint32_t u, std::uint32_t v) {
    if (u > v) std::swap(u, v);
    if (queued_.test(u, v) || graph_.adjacent(u, v)) return;
    queued_.set(u, v);
    open_.emplace_back(u, v);
  }

  /// Finds the common neighbours of u and v.
  void find_common(std::uint32_t u, std::uint32_t v) {
    members_.clear();
    const std::uint64_t *x = filled_[u], *y = filled_[v];
    for_each_bit(
        common_.size(), [&](std::size_t w) { return common_[w] = x[w] & y[w]; },
        [&](std::uint32_t member) { members_.push_back(member); });
  }

  /// True when the common neighbours are a clique: then the filled graph stays chordal without the edge.
  [[nodiscard]] bool common_is_clique(stop_poll& poll) const {
    for (const std::uint32_t x : members_) {
      (void)poll.count(common_.size());
      const std::uint64_t* row = filled_[x];
      for (std::size_t w = 0; w < common_.size(); ++w) {
        std::uint64_t left = common_[w] & ~row[w];
        if (w == x / 64) left &= ~(std::uint64_t{1} << (x % 64));
        if (left != 0) return false;
      }
    }
    return true;
  }

  const undirected_graph& graph_;
  bit_matrix filled_, queued_;                // only the upper half of `queued_` is used
  std::vector<undirected_graph::edge> open_;  // edges to look at
  std::vector<std::uint64_t> common_;         // the common neighbours of the last edge, as a row
  std::vector<std::uint32_t> members_;        // the same, as a list
};

}  // namespace safe_separators

/// A decomposition whose bags are the maximal cliques of a *minimal* triangulation of g within the bags of `t`: no edge
/// that the bags add to g can be removed. It is never wider than `t`. The common vertices of two bags beside each other
/// are then a minimal separator of g.
///
/// An added edge can be removed if the common neighbours of its ends are a clique (Rose, Tarjan and Lueker
/// \cite rose1976algorithmic). After a removal the edges beside it are tried again. n²/4 bytes;
/// O((added edges + removals · width) · width · n / 64) time. `stop` is asked every fraction of a millisecond; true
/// ends the removal of edges.
[[nodiscard]] inline tree_decomposition minimal_decomposition(const undirected_graph& g, const tree_decomposition& t,
                                                              stop_function stop = nullptr) {
  safe_separators::filled_graph filled(g, t);
  if (!filled.reduce(stop)) return t;
  const undirected_graph chordal = filled.graph();
  return decomposition_of(chordal, maximum_cardinality_order(chordal));
}

/// Tests of minimal separators for safety. A separator is safe if making it a clique does not increase the treewidth
/// (Bodlaender and Koster \cite bodlaender2006safe). Both tests are sufficient, not necessary. `stop` is asked every
/// fraction of a millisecond; once it answers true, both answer false.
class safe_separator_test {
 public:
  /// Keeps references to `g` and `stop`. O(vertices) time.
  explicit safe_separator_test(const undirected_graph& g, stop_function stop = nullptr)
      : g_(g),
        poll_(stop),
        component_(g.num_vertices(), 0),
        before_(g.num_vertices(), 0),
        seen_(g.num_vertices(), 0),
        used_(g.num_vertices(), 0) {}

  /// True when all vertices of `separator` but one are a clique. `separator` is minimal and ascending.
  /// O(|separator|² · log) time.
  [[nodiscard]] bool almost_clique(std::span<const std::uint32_t> separator) {
    std::uint32_t a = undirected_graph::none, b = undirected_graph::none;  // the first two that are not joined
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

  /// True when, for each component of the graph without `separator`, the other components can be contracted onto the
  /// separator so that it becomes a clique. It is tried with disjoint shortest paths, one for each missing edge.
  /// O(components · missing edges · edges) time.
  [[nodiscard]] bool clique_minor(std::span<const std::uint32_t> separator) {
    std::fill(component_.begin(), component_.end(), 0U);
    for (const std::uint32_t v : separator) component_[v] = in_separator;
    std::uint32_t components = 0;
    for (std::uint32_t v = 0; v < component_.size(); ++v) {
      if (component_[v] != 0) continue;
      component_[v] = ++components;
      queue_.assign(1, v);
      extend_reach(g_.rows(), queue_, [&](std::uint32_t u) {
        if (component_[u] != 0) return false;
        component_[u] = components;
        return true;
      });
    }
    if (components < 2) return false;
    for (std::uint32_t without = 1; without <= components; ++without)
      if (!contract(separator, without)) return false;
    return true;
  }

 private:
  static constexpr std::uint32_t in_separator = undirected_graph::none;

  /// Contracts components other than `without` onto the separator `s`. Returns true when it becomes a clique.
  bool contract(std::span<const std::uint32_t> s, std::uint32_t without) {
    const std::size_t k = s.size();
    std::vector<std::vector<std::uint8_t>> joined(k, std::vector<std::uint8_t>(k));
    std::fill(used_.begin(), used_.end(), std::uint8_t{0});
    for (std::size_t i = 0; i < k; ++i)
      for (std::size_t j = 0; j < k; ++j) joined[i][j] = i == j || g_.adjacent(s[i], s[j]);
    for (std::size_t i = 0; i < k; ++i)
      for (std::size_t j = i + 1; j < k; ++j) {
        if (joined[i][j]) continue;
        if (poll_.count(2 * k)) return false;
        // The end that lacks more takes the path.
        std::size_t from = i, to = j;
        if (std::count(joined[j].begin(), joined[j].end(), 0) > std::count(joined[i].begin(), joined[i].end(), 0))
          std::swap(from, to);
        if (!find_path(s[from], s[to], without)) return false;
        for (std::size_t x = 0; x < k; ++x) {
          if (joined[from][x]) continue;
          (void)poll_.count(8 * path_.size());
          joined[from][x] = joined[x][from] =
              std::any_of(path_.begin(), path_.end(), [&](std::uint32_t v) { return g_.adjacent(v, s[x]); });
        }
        if (!joined[from][to]) return false;
      }
    return true;
  }

  /// Finds a shortest path within the components other than `without`, from a neighbour of `from` to one of `to`.
  bool find_path(std::uint32_t from, std::uint32_t to, std::uint32_t without) {
    ++stamp_;
    queue_.clear();
    path_.clear();
    const auto reach = [&](std::uint32_t u, std::uint32_t before) {
      if (component_[u] == in_separator || component_[u] == without || used_[u] || seen_[u] == stamp_) return;
      seen_[u] = stamp_;
      before_[u] = before;
      queue_.push_back(u);
    };
    for (const std::uint32_t u : g_.neighbours(from)) reach(u, undirected_graph::none);
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      const std::uint32_t v = queue_[i];
      if (poll_.count(8 + g_.degree(v))) return false;
      if (g_.adjacent(v, to)) {
        for (std::uint32_t x = v; x != undirected_graph::none; x = before_[x]) {
          path_.push_back(x);
          used_[x] = 1;
        }
        return true;
      }
      for (const std::uint32_t u : g_.neighbours(v)) reach(u, v);
    }
    return false;
  }

  const undirected_graph& g_;
  stop_poll poll_;
  std::vector<std::uint32_t> component_, before_, seen_;
  std::vector<std::uint8_t> used_;  // whether each vertex is on a path
  std::vector<std::uint32_t> queue_, path_;
  std::uint32_t stamp_ = 0;
};

/// One side of some separators of a graph, as a graph of its own in which these separators are cliques.
struct torso {
  std::vector<std::uint32_t> vertices;  ///< vertices of the whole graph, ascending
  undirected_graph graph{};             ///< a graph on their positions
  tree_decomposition tree{};            ///< the bags of this side, in positions
};

/// The torso of the bags `chosen`, which are connected in the tree: the graph on their vertices, in which the common
/// vertices of a chosen bag and a bag beside it that is not chosen are a clique. `links` is `t.links()`. `number` is
/// working memory: `undirected_graph::none` for every vertex of g, before and after the call.
/// With k vertices: k²/8 bytes and O(edges at the vertices + sum of separator sizes · k / 64) time.
[[nodiscard]] inline torso torso_of(const undirected_graph& g, const tree_decomposition& t, const index_rows& links,
                                    std::span<const std::uint32_t> chosen, std::vector<std::uint32_t>& number) {
  torso out;
  std::vector<std::uint32_t> sorted(chosen.begin(), chosen.end());
  std::sort(sorted.begin(), sorted.end());
  for (const std::uint32_t b : sorted)
    for (const std::uint32_t v : t.bags[b])
      if (number[v] == undirected_graph::none) {
        number[v] = 0;
        out.vertices.push_back(v);
      }
  std::sort(out.vertices.begin(), out.vertices.end());
  const auto k = static_cast<std::uint32_t>(out.vertices.size());
  for (std::uint32_t i = 0; i < k; ++i) number[out.vertices[i]] = i;
  // Separators overlap: a matrix of bits takes each pair once.
  bit_matrix joined(k, k), mask(1, k);
  for (std::uint32_t i = 0; i < k; ++i)
    for (const std::uint32_t u : g.neighbours(out.vertices[i]))
      if (number[u] != undirected_graph::none) joined.set(i, number[u]);
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
      const std::vector<std::uint32_t> shared = common_vertices(t, b, c);
      for (const std::uint32_t v : shared) mask.set(0, number[v]);
      for (const std::uint32_t v : shared) joined.add(number[v], mask[0]);
      for (const std::uint32_t v : shared) mask.reset(0, number[v]);
    }
  }
  out.graph = safe_separators::graph_of(joined, k);
  for (const std::uint32_t v : out.vertices) number[v] = undirected_graph::none;
  return out;
}

}  // namespace REMAT_NAMESPACE::detail
