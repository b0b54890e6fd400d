// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/treewidth/detail/dissection.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/random.hpp"
#include "remat/treewidth/detail/flow_cutter.hpp"

namespace remat::detail {

namespace dissecting {

/// The best separator of a connected graph among those between some random pairs of vertices; empty if there is none.
inline std::vector<std::uint32_t> separate(const undirected_graph& g, const dissection_options& options,
                                           random_source& random) {
  const auto n = static_cast<std::uint32_t>(g.num_vertices());
  flow_cutter cutter(g);
  // The work is reported while it is done, so that a work limit can stop the search for one separator.
  std::uint64_t reported = 0;
  const std::function<bool()> stop = [&] {
    if (options.work != nullptr) *options.work += cutter.work() - std::exchange(reported, cutter.work());
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
      // A less even separator must be smaller in proportion.
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

/// Nested dissection of one graph; gives vertices ranks.
class dissector {
 public:
  dissector(const undirected_graph& g, const dissection_options& options)
      : graph_(g),
        options_(options),
        random_(options.seed),
        level_(g.num_vertices(), undirected_graph::none),
        number_(g.num_vertices(), undirected_graph::none),
        mark_(g.num_vertices(), 0),
        placed_(g.num_vertices(), 0) {}

  std::vector<std::uint32_t> run() {
    const auto n = static_cast<std::uint32_t>(graph_.num_vertices());
    std::vector<std::uint32_t> all(n);
    for (std::uint32_t v = 0; v < n; ++v) all[v] = v;
    open_components(all, 0);
    while (!open_.empty()) {
      if (options_.stop != nullptr && (*options_.stop)()) return {};
      const cell now = std::move(open_.back());
      open_.pop_back();
      dissect(now);
    }
    std::vector<std::uint32_t> rank(n, 0);
    for (std::uint32_t v = 0; v < n; ++v)
      if (level_[v] != undirected_graph::none) rank[v] = std::min(deepest_ - level_[v], 65535U);
    return rank;
  }

 private:
  /// A connected set of vertices that are in no separator yet.
  struct cell {
    std::vector<std::uint32_t> vertices;
    std::uint32_t depth;
  };

  /// Opens a cell for each connected component of the vertices that have no place yet.
  void open_components(const std::vector<std::uint32_t>& vertices, std::uint32_t depth) {
    ++stamp_;
    for (const std::uint32_t v : vertices) {
      if (placed_[v] || mark_[v] == stamp_) continue;
      cell c{{v}, depth};
      mark_[v] = stamp_;
      for (std::size_t i = 0; i < c.vertices.size(); ++i)
        for (const std::uint32_t u : graph_.neighbours(c.vertices[i]))
          if (!placed_[u] && mark_[u] != stamp_) {
            mark_[u] = stamp_;
            c.vertices.push_back(u);
          }
      open_.push_back(std::move(c));
    }
  }

  /// The number of vertices outside of a cell that are adjacent to it.
  std::uint32_t border_of(const cell& c) {
    ++stamp_;
    std::uint32_t border = 0;
    for (const std::uint32_t v : c.vertices) mark_[v] = stamp_;
    for (const std::uint32_t v : c.vertices)
      for (const std::uint32_t u : graph_.neighbours(v))
        if (mark_[u] != stamp_) {
          mark_[u] = stamp_;
          ++border;
        }
    return border;
  }

  void dissect(const cell& now) {
    const auto size = static_cast<std::uint32_t>(now.vertices.size());
    std::vector<std::uint32_t> separator;
    if (size > options_.smallest && size + border_of(now) > options_.target)
      separator = separate(induced_subgraph(graph_, now.vertices, number_), options_, random_);
    if (separator.empty()) {
      for (const std::uint32_t v : now.vertices) placed_[v] = 1;
      return;
    }
    for (std::uint32_t& v : separator) {
      v = now.vertices[v];
      placed_[v] = 1;
      level_[v] = now.depth;
    }
    deepest_ = std::max(deepest_, now.depth + 1);
    open_components(now.vertices, now.depth + 1);
  }

  const undirected_graph& graph_;
  const dissection_options& options_;
  random_source random_;
  std::vector<std::uint32_t> level_;  // vertex → depth of its separator
  std::vector<std::uint32_t> number_, mark_;
  std::vector<std::uint8_t> placed_;  // vertex is in a separator, or in a cell that stays whole
  std::vector<cell> open_;
  std::uint32_t stamp_ = 0, deepest_ = 0;
};

}  // namespace dissecting

REMAT_INLINE std::vector<std::uint32_t> dissection_ranks(const undirected_graph& g, const dissection_options& options) {
  return detail::dissecting::dissector(g, options).run();
}

}  // namespace remat::detail
