// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/treewidth/detail/flow_cutter.hpp"
#include "remat/treewidth/detail/stop_poll.hpp"
#include "remat/treewidth/detail/subgraph.hpp"
#include "remat/treewidth/tree_decomposition.hpp"

namespace REMAT_NAMESPACE::detail {

struct dissection_options {
  std::uint64_t seed = 0;         ///< the seed of the random choice of pairs and of ties
  std::uint32_t pairs = 4;        ///< pairs of vertices between which each separator is looked for
  double min_share = 0.2;         ///< the smaller side of a separator should have at least this share of the vertices
  std::uint32_t target = 0;       ///< a cell stays whole if it and its border have at most this many vertices
  stop_function stop = nullptr;   ///< asked for each path of a flow; true ends it without ranks
  std::uint64_t* work = nullptr;  ///< if given, elementary steps are added to it as they are done
};

namespace dissection {

/// The best separator of a connected graph among those between some random pairs of vertices; empty if there is none.
inline std::vector<std::uint32_t> separate(const undirected_graph& g, const dissection_options& options,
                                           random_source& random) {
  const auto n = static_cast<std::uint32_t>(g.num_vertices());
  flow_cutter cutter(g);
  // The work is reported while it is done, so that a work limit can stop the search for one separator.
  std::uint64_t reported = 0;
  const std::function<bool()> stop = [&] {
    if (options.work != nullptr) *options.work += cutter.work() - std::exchange(reported, cutter.work());
    return must_stop(options.stop);
  };
  std::vector<std::uint32_t> best;
  double best_score = 0;
  for (std::uint32_t i = 0; i < options.pairs; ++i) {
    std::uint32_t s = random.below(n), t = random.below(n);
    for (int again = 0; again < 8 && (s == t || g.adjacent(s, t)); ++again) t = random.below(n);
    const std::uint32_t max_size = best.empty() ? n : static_cast<std::uint32_t>(2 * best.size());
    for (const flow_cutter::separator& cut : cutter.run(s, t, max_size, random, &stop)) {
      const double share = static_cast<double>(cut.smaller_side) / n;
      // A less even separator must be smaller in proportion.
      const double score = static_cast<double>(cut.vertices.size()) / std::min(share, options.min_share);
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
    std::vector<std::uint32_t> rank(graph_.num_vertices());
    std::iota(rank.begin(), rank.end(), 0U);
    open_components(rank, 0);
    while (!open_.empty()) {
      if (must_stop(options_.stop)) return {};
      const cell now = std::move(open_.back());
      open_.pop_back();
      dissect(now);
    }
    for (std::size_t v = 0; v < rank.size(); ++v)
      rank[v] = level_[v] == undirected_graph::none ? 0 : std::min(deepest_ - level_[v], 65535U);
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
    const auto enter = [&](std::uint32_t v) { return !placed_[v] && std::exchange(mark_[v], stamp_) != stamp_; };
    for (const std::uint32_t v : vertices) {
      if (!enter(v)) continue;
      open_.push_back({{v}, depth});
      extend_reach(graph_.rows(), open_.back().vertices, enter);
    }
  }

  /// The number of vertices outside of a cell that are adjacent to it.
  std::uint32_t border_of(const cell& c) {
    ++stamp_;
    std::uint32_t border = 0;
    for (const std::uint32_t v : c.vertices) mark_[v] = stamp_;
    for (const std::uint32_t v : c.vertices)
      for (const std::uint32_t u : graph_.neighbours(v)) border += std::exchange(mark_[u], stamp_) != stamp_;
    return border;
  }

  void dissect(const cell& now) {
    constexpr std::uint32_t max_leaf = 24;  // a cell of at most this many vertices stays whole
    const auto size = static_cast<std::uint32_t>(now.vertices.size());
    std::vector<std::uint32_t> separator;
    if (size > max_leaf && size + border_of(now) > options_.target)
      separator = separate(induced_subgraph(graph_, now.vertices, number_), options_, random_);
    if (separator.empty()) {
      for (const std::uint32_t v : now.vertices) placed_[v] = 1;
      return;
    }
    for (const std::uint32_t i : separator) {
      placed_[now.vertices[i]] = 1;
      level_[now.vertices[i]] = now.depth;
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

}  // namespace dissection

/// Ranks for an elimination order by nested dissection: a separator is eliminated after the cells that it separates,
/// and each cell is dissected in the same way. Vertices of lower rank are to be eliminated first; ranks are below
/// 65536.
///
/// Strasser \cite strasser2017computing builds decompositions from the separators of FlowCutter. Here the separators
/// only give ranks, and a greedy rule orders the vertices of each rank, which can only make bags smaller. Empty if it
/// was stopped. O(pairs · depth · edges · separator) time.
[[nodiscard]] inline std::vector<std::uint32_t> dissection_ranks(const undirected_graph& g,
                                                                 const dissection_options& options) {
  return dissection::dissector(g, options).run();
}

}  // namespace REMAT_NAMESPACE::detail
