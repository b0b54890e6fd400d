// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "remat/core/random.hpp"
#include "remat/treewidth/elimination_order.hpp"
#include "remat/treewidth/flow_cutter.hpp"
#include "remat/treewidth/undirected_graph.hpp"

namespace remat {

/// How a graph is taken apart by `dissection_ranks`.
struct dissection_options {
  std::uint64_t seed = 0;
  std::uint32_t pairs = 4;      ///< of far ends that are tried for each separator
  double least_share = 0.2;     ///< of the vertices, on the smaller side of a separator where that is possible
  std::uint32_t target = 0;     ///< cells that make a bag of at most this size with their border stay whole
  std::uint32_t smallest = 24;  ///< and so do those of fewer vertices
  const std::function<bool()>* stop = nullptr;  ///< asked often; true ends it, without an order
  std::uint64_t* work = nullptr;                ///< counts elementary steps, if given
};

namespace detail::dissecting {

/// The subgraph of some vertices, numbered as they come. `number` is none everywhere, and is again afterwards.
inline undirected_graph induced(const undirected_graph& g, const std::vector<std::uint32_t>& vertices,
                                std::vector<std::uint32_t>& number) {
  std::vector<undirected_graph::edge> edges;
  for (std::uint32_t i = 0; i < vertices.size(); ++i) number[vertices[i]] = i;
  for (std::uint32_t i = 0; i < vertices.size(); ++i)
    for (const std::uint32_t u : g.neighbours(vertices[i]))
      if (number[u] != detail::eliminating::none && number[u] > i) edges.emplace_back(i, number[u]);
  for (const std::uint32_t v : vertices) number[v] = detail::eliminating::none;
  return undirected_graph(vertices.size(), edges);
}

/// The best separator of a connected graph among those of some pairs; empty if none was found.
inline std::vector<std::uint32_t> separate(const undirected_graph& g, const dissection_options& options,
                                           random_source& random) {
  const auto n = static_cast<std::uint32_t>(g.num_vertices());
  flow_cutter cutter(g);
  // The work is told as it is done, so that a limit on it can stop the search for one separator.
  std::uint64_t told = 0;
  const std::function<bool()> stop = [&] {
    if (options.work != nullptr) *options.work += cutter.work() - std::exchange(told, cutter.work());
    return options.stop != nullptr && (*options.stop)();
  };
  std::vector<std::uint32_t> best;
  double best_score = 0;
  for (std::uint32_t i = 0; i < options.pairs; ++i) {
    std::uint32_t s = random.below(n), t = random.below(n);
    for (int again = 0; again < 8 && (s == t || g.adjacent(s, t)); ++again) t = random.below(n);
    const std::uint32_t most = best.empty() ? n : static_cast<std::uint32_t>(2 * best.size());
    for (const flow_cutter::separator& cut : cutter.run(s, t, most, random, &stop)) {
      const double share = static_cast<double>(cut.smaller_side) / n;
      // Less even ones must be smaller in proportion.
      const double score = static_cast<double>(cut.vertices.size()) / std::min(share, options.least_share);
      if (cut.smaller_side > 0 && (best.empty() || score < best_score)) {
        best_score = score;
        best = cut.vertices;
      }
    }
    if (stop()) break;
  }
  return best;
}

}  // namespace detail::dissecting

/// Ranks for an elimination order by nested dissection: a separator goes last, before it what it separates, each part
/// in the same way (as Strasser \cite strasser2017computing builds decompositions with FlowCutter; here the separators
/// only give ranks, lower ones to be eliminated first, and a greedy rule then orders the vertices of each rank, which
/// can only make bags smaller). Ranks are below 65536.
/// Empty where it was stopped. O(pairs · depth · edges · separator) time.
[[nodiscard]] inline std::vector<std::uint32_t> dissection_ranks(const undirected_graph& g,
                                                                 const dissection_options& options) {
  using detail::eliminating::none;
  const auto n = static_cast<std::uint32_t>(g.num_vertices());
  random_source random(options.seed);
  std::vector<std::uint32_t> level(n, none), number(n, none), mark(n, 0);
  struct cell {
    std::vector<std::uint32_t> vertices;
    std::uint32_t depth;
  };
  std::vector<cell> open;
  std::vector<std::uint8_t> placed(n, 0);  // in a separator, or in a cell that stays whole
  std::uint32_t stamp = 0, deepest = 0;
  const auto split = [&](const std::vector<std::uint32_t>& vertices, std::uint32_t depth) {
    ++stamp;
    for (const std::uint32_t v : vertices) {
      if (placed[v] || mark[v] == stamp) continue;
      cell c{{v}, depth};
      mark[v] = stamp;
      for (std::size_t i = 0; i < c.vertices.size(); ++i)
        for (const std::uint32_t u : g.neighbours(c.vertices[i]))
          if (!placed[u] && mark[u] != stamp) {
            mark[u] = stamp;
            c.vertices.push_back(u);
          }
      open.push_back(std::move(c));
    }
  };
  std::vector<std::uint32_t> all(n);
  for (std::uint32_t v = 0; v < n; ++v) all[v] = v;
  split(all, 0);
  while (!open.empty()) {
    if (options.stop != nullptr && (*options.stop)()) return {};
    const cell now = std::move(open.back());
    open.pop_back();
    const auto size = static_cast<std::uint32_t>(now.vertices.size());
    ++stamp;
    std::uint32_t border = 0;
    for (const std::uint32_t v : now.vertices) mark[v] = stamp;
    for (const std::uint32_t v : now.vertices)
      for (const std::uint32_t u : g.neighbours(v))
        if (mark[u] != stamp) {
          mark[u] = stamp;
          ++border;
        }
    std::vector<std::uint32_t> separator;
    if (size > options.smallest && size + border > options.target)
      separator = detail::dissecting::separate(detail::dissecting::induced(g, now.vertices, number), options, random);
    if (separator.empty()) {
      for (const std::uint32_t v : now.vertices) placed[v] = 1;
      continue;
    }
    for (std::uint32_t& v : separator) {
      v = now.vertices[v];
      placed[v] = 1;
      level[v] = now.depth;
    }
    deepest = std::max(deepest, now.depth + 1);
    split(now.vertices, now.depth + 1);
  }
  std::vector<std::uint32_t> rank(n, 0);
  for (std::uint32_t v = 0; v < n; ++v)
    if (level[v] != none) rank[v] = std::min(deepest - level[v], 65535U);
  return rank;
}

}  // namespace remat
