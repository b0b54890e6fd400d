// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "remat/core/index_rows.hpp"
#include "remat/treewidth/detail/stop_poll.hpp"
#include "remat/treewidth/tree_decomposition.hpp"
#include "remat/treewidth/undirected_graph.hpp"

namespace remat::detail {

/// A decomposition whose bags are the maximal cliques of a *minimal* triangulation of g within the bags of `t`: no edge
/// that the bags add to g can be removed. It is never wider than `t`. The common vertices of two bags beside each other
/// are then a minimal separator of g.
///
/// An added edge can be removed if the common neighbours of its ends are a clique (Rose, Tarjan and Lueker
/// \cite rose1976algorithmic). After a removal the edges beside it are tried again. n²/4 bytes;
/// O((added edges + removals · width) · width · n / 64) time. `stop` is asked every fraction of a millisecond; true
/// ends the removal of edges.
[[nodiscard]] tree_decomposition minimal_decomposition(const undirected_graph& g, const tree_decomposition& t,
                                                       const std::function<bool()>* stop = nullptr);

/// Tests of minimal separators for safety. A separator is safe if making it a clique does not increase the treewidth
/// (Bodlaender and Koster \cite bodlaender2006safe). Both tests are sufficient, not necessary. `stop` is asked every
/// fraction of a millisecond; once it answers true, both answer false.
class safe_separator_test {
 public:
  /// Keeps references to `g` and `stop`. O(vertices) time.
  explicit safe_separator_test(const undirected_graph& g, const std::function<bool()>* stop = nullptr)
      : g_(g), poll_(stop), part_(g.num_vertices(), 0), used_(g.num_vertices(), 0), before_(g.num_vertices(), 0) {}

  /// True when all vertices of `separator` but one are a clique. `separator` is minimal and ascending.
  /// O(|separator|² · log) time.
  [[nodiscard]] bool almost_clique(std::span<const std::uint32_t> separator);

  /// True when, for each component of the graph without `separator`, the other components can be contracted onto the
  /// separator so that it becomes a clique. It is tried with disjoint shortest paths, one for each missing edge.
  /// O(components · missing edges · edges) time.
  [[nodiscard]] bool clique_minor(std::span<const std::uint32_t> separator);

 private:
  bool contract(std::span<const std::uint32_t> s, std::uint32_t without);
  /// Finds a shortest path from s[from] to `to` within the components other than `without`.
  bool path(std::span<const std::uint32_t> s, std::size_t from, std::uint32_t to, std::uint32_t without);

  const undirected_graph& g_;
  detail::polling::stop_poll poll_;
  std::vector<std::uint32_t> part_;
  std::vector<std::uint8_t> used_;
  std::vector<std::uint32_t> before_, queue_, path_;
  std::vector<std::uint32_t> seen_;
  std::vector<std::uint8_t> joined_;
  std::uint32_t stamp_ = 0;
};

/// One side of some separators of a graph, as a graph of its own in which these separators are cliques.
struct torso {
  std::vector<std::uint32_t> vertices;  ///< of the whole graph, ascending
  undirected_graph graph{};             ///< on their positions
  tree_decomposition tree{};            ///< the bags of this side, in positions
};

/// The torso of the bags `chosen`, which are connected in the tree: the graph on their vertices, in which the common
/// vertices of a chosen bag and a bag beside it that is not chosen are a clique. `links` is `t.links()`. `number` is
/// working memory: `undirected_graph::none` for every vertex of g, before and after the call.
/// With k vertices: k²/8 bytes and O(edges at the vertices + sum of separator sizes · k / 64) time.
[[nodiscard]] torso torso_of(const undirected_graph& g, const tree_decomposition& t, const index_rows& links,
                             std::span<const std::uint32_t> chosen, std::vector<std::uint32_t>& number);

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/treewidth/impl/safe_separators.hpp"
#endif
