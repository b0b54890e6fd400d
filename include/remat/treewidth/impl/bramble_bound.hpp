// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "remat/treewidth/detail/stop_poll.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace REMAT_NAMESPACE::detail {

namespace bramble_bound {

using path = std::vector<std::uint32_t>;
inline constexpr std::uint32_t none = undirected_graph::none;

/// Distances from one vertex, and the way back to it.
struct distances {
  std::vector<std::uint32_t> to, parent;

  distances(const undirected_graph& g, std::uint32_t from)
      : to(g.num_vertices(), none), parent(g.num_vertices(), none) {
    path queue{from};
    to[from] = 0;
    for (std::size_t k = 0; k < queue.size(); ++k)
      for (const std::uint32_t v : g.neighbours(queue[k]))
        if (to[v] == none) to[v] = to[queue[k]] + 1, parent[v] = queue[k], queue.push_back(v);
  }
  [[nodiscard]] path way_to(std::uint32_t v) const {
    path out;
    for (; v != none; v = parent[v]) out.push_back(v);
    return out;
  }
};

/// The reached vertex of the largest key.
template <class Key>
[[nodiscard]] std::uint32_t best_vertex(const distances& d, const Key& key) {
  std::uint32_t best = none;
  for (std::uint32_t v = 0; v < d.to.size(); ++v)
    if (d.to[v] != none && (best == none || key(v) > key(best))) best = v;
  return best;
}

/// The most paths from one set of vertices to another one that share no vertex, by augmenting paths.
[[nodiscard]] inline std::vector<path> disjoint_paths(const undirected_graph& g, const path& from, const path& to,
                                                      stop_poll& poll) {
  const std::size_t n = g.num_vertices();
  // Node 2v is where paths enter v, and 2v + 1 where they leave it. before[v], after[v]: the neighbours of v on its
  // path, v itself at an end; `none` if v is on no path.
  path before(n, none), after(n, none), reached(2 * n), queue;
  std::vector<std::uint8_t> is_end(n, 0);
  for (const std::uint32_t v : to) is_end[v] = 1;
  for (;;) {
    std::fill(reached.begin(), reached.end(), none);
    queue.clear();
    const auto reach = [&](std::uint32_t node, std::uint32_t by) {
      if (reached[node] != none) return;
      reached[node] = by;
      queue.push_back(node);
    };
    for (const std::uint32_t v : from)
      if (before[v] != v) reach(2 * v, 2 * v);
    std::uint32_t last = none;
    for (std::size_t k = 0; k < queue.size() && last == none; ++k) {
      const std::uint32_t node = queue[k], v = node / 2;
      if (poll.count(1 + g.degree(v))) return {};
      if (node % 2 == 0) {
        if (before[v] == none)
          reach(node + 1, node);
        else if (before[v] != v)
          reach(2 * before[v] + 1, node);  // back along the path
        continue;
      }
      if (is_end[v] != 0 && after[v] != v) {
        last = node;
        break;
      }
      if (before[v] != none) reach(node - 1, node);
      for (const std::uint32_t u : g.neighbours(v))
        if (after[v] != u) reach(2 * u, node);
    }
    if (last == none) break;
    // Each arc out of a vertex that is new to the walk replaces the old one; arcs walked back are dropped.
    std::vector<std::pair<std::uint32_t, std::uint32_t>> arcs;
    const std::uint32_t end = last / 2;
    for (std::uint32_t node = last; reached[node] != node; node = reached[node]) arcs.emplace_back(reached[node], node);
    std::reverse(arcs.begin(), arcs.end());
    const std::uint32_t begin = arcs.empty() ? end : arcs.front().first / 2;
    for (const auto& [a, b] : arcs)
      if (a % 2 == 0 && b % 2 == 1 && a / 2 != b / 2) after[b / 2] = none, before[a / 2] = none;
    for (const auto& [a, b] : arcs)
      if (a % 2 == 1 && b % 2 == 0 && a / 2 != b / 2) after[a / 2] = b / 2, before[b / 2] = a / 2;
    before[begin] = begin;
    after[end] = end;
  }
  std::vector<path> out;
  for (const std::uint32_t v : from) {
    if (before[v] != v) continue;
    out.push_back({v});
    while (after[out.back().back()] != out.back().back()) out.back().push_back(after[out.back().back()]);
  }
  return out;
}

/// Each vertex's path of a family.
[[nodiscard]] inline path numbers(const std::vector<path>& family, std::size_t vertices) {
  path out(vertices, none);
  for (std::uint32_t i = 0; i < family.size(); ++i)
    for (const std::uint32_t v : family[i]) out[v] = i;
  return out;
}

/// Leaves out paths until every path of one family meets every path of the other one.
inline void cross(std::vector<path>& p, std::vector<path>& q, std::size_t vertices) {
  while (!p.empty() && !q.empty()) {
    const path on = numbers(p, vertices);
    std::vector<std::size_t> met_by_p(p.size(), 0), met_by_q(q.size(), 0);
    for (std::size_t j = 0; j < q.size(); ++j) {
      std::vector<std::uint8_t> met(p.size(), 0);
      for (const std::uint32_t v : q[j])
        if (on[v] != none) met[on[v]] = 1;
      for (std::size_t i = 0; i < p.size(); ++i) met_by_p[i] += met[i], met_by_q[j] += met[i];
    }
    const auto least_p = std::min_element(met_by_p.begin(), met_by_p.end());
    const auto least_q = std::min_element(met_by_q.begin(), met_by_q.end());
    if (*least_p == q.size()) return;
    if (q.size() - *least_p >= p.size() - *least_q)
      p.erase(p.begin() + (least_p - met_by_p.begin()));
    else
      q.erase(q.begin() + (least_q - met_by_q.begin()));
  }
}

/// The last path of a family, whose numbers are `on`, that `along` meets.
[[nodiscard]] inline std::uint32_t last_met(const path& along, const path& on) {
  std::uint32_t out = none;
  for (const std::uint32_t v : along) out = on[v] != none ? on[v] : out;
  return out;
}

/// Cuts each path before its first vertex on path `last` of the other family; false if one does not meet that path.
/// `touched` gets those vertices.
[[nodiscard]] inline bool cut(std::vector<path>& family, const path& on, std::uint32_t last, path& touched) {
  for (path& x : family) {
    const auto at = std::find_if(x.begin(), x.end(), [&](std::uint32_t v) { return on[v] == last; });
    if (at == x.end() || at == x.begin()) return false;
    touched.push_back(*at);
    x.erase(at, x.end());
  }
  return true;
}

}  // namespace bramble_bound

/// A lower bound on the treewidth, for graphs like grids, in which contractions find little: by a bramble, a set of
/// connected parts any two of which share a vertex or are joined by an edge \cite seymour1993graph. If no k vertices
/// meet all parts, the treewidth is at least k.
///
/// Four vertices far from each other are the corners, and shortest ways between them the sides. Let P be paths without
/// a common vertex from one side to the opposite one, and Q such paths between the other two sides, all of which meet
/// all of P: k of each, at least. The parts are the unions of a path of P and one of Q: k − 1 vertices miss a path of
/// each. If the last paths can be parts of their own, and the others end before them, one more vertex is needed.
///
/// Reads the part of the graph that holds vertex 0. O(k · edges) time; a stop leaves the bound 0.
[[nodiscard]] inline std::uint32_t grid_bound(const undirected_graph& g, stop_function stop = nullptr) {
  namespace b = bramble_bound;
  const std::size_t n = g.num_vertices();
  if (n < 4) return 0;
  stop_poll poll(stop);
  const auto few = [&](std::uint32_t v) { return n - g.degree(v); };
  const b::distances any(g, 0);
  const std::uint32_t one = b::best_vertex(any, [&](std::uint32_t v) { return std::tuple(any.to[v], few(v), v); });
  const b::distances from_one(g, one);
  const std::uint32_t three =
      b::best_vertex(from_one, [&](std::uint32_t v) { return std::tuple(from_one.to[v], few(v), v); });
  const b::distances from_three(g, three);
  const auto beside = [&](std::uint32_t v) {
    const std::uint32_t near = std::min(from_one.to[v], from_three.to[v]);
    return std::tuple(near > 0, from_one.to[v] + from_three.to[v], few(v), near);
  };
  const std::uint32_t two = b::best_vertex(from_one, [&](std::uint32_t v) { return std::tuple(beside(v), v); });
  const b::distances from_two(g, two);
  const std::uint32_t four = b::best_vertex(
      from_one, [&](std::uint32_t v) { return std::tuple(from_two.to[v] > 0, beside(v), from_two.to[v], v); });
  std::vector<b::path> p = b::disjoint_paths(g, from_one.way_to(two), from_three.way_to(four), poll);
  std::vector<b::path> q = b::disjoint_paths(g, from_one.way_to(four), from_three.way_to(two), poll);
  b::cross(p, q, n);
  const auto order = static_cast<std::uint32_t>(std::min(p.size(), q.size()));
  if (order < 2 || poll.stopped()) return order == 0 ? 0 : order - 1;
  // The last paths become parts of their own.
  const b::path on_p = b::numbers(p, n), on_q = b::numbers(q, n);
  const std::uint32_t last_p = b::last_met(q[0], on_p), last_q = b::last_met(p[0], on_q);
  std::vector<b::path> own_part{std::exchange(q[last_q], {})};
  q.erase(q.begin() + last_q);
  p.erase(p.begin() + last_p);
  b::path of_p, of_q;  // where the parts touch that of P, and that of Q
  if (!b::cut(own_part, on_p, last_p, of_p) || !b::cut(q, on_p, last_p, of_p) || !b::cut(p, on_q, last_q, of_q))
    return order - 1;
  const b::path own = b::numbers(own_part, n);
  if (std::any_of(of_q.begin(), of_q.end(), [&](std::uint32_t v) { return own[v] == b::none; })) return order - 1;
  const std::size_t before = std::min(p.size(), q.size());
  b::cross(p, q, n);
  return std::min(p.size(), q.size()) == before ? order : order - 1;
}

}  // namespace REMAT_NAMESPACE::detail
