// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "remat/treewidth/undirected_graph.hpp"

namespace remat::detail {

/// Options of `dissection_ranks`.
struct dissection_options {
  std::uint64_t seed = 0;       ///< of the random choice of pairs and of ties
  std::uint32_t pairs = 4;      ///< pairs of vertices between which each separator is looked for
  double least_share = 0.2;     ///< of the vertices: the smaller side of a separator should have at least this share
  std::uint32_t target = 0;     ///< a cell stays whole if it and its border have at most so many vertices
  std::uint32_t smallest = 24;  ///< a cell of at most so many vertices stays whole
  const std::function<bool()>* stop = nullptr;  ///< asked for each path of a flow; true ends it without ranks
  std::uint64_t* work = nullptr;                ///< if given, elementary steps are added to it as they are done
};

/// Ranks for an elimination order by nested dissection: a separator is eliminated after the parts that it separates,
/// and each part is dissected in the same way. Vertices of lower rank are to be eliminated first; ranks are below
/// 65536.
///
/// Strasser \cite strasser2017computing builds decompositions from the separators of FlowCutter. Here the separators
/// only give ranks, and a greedy rule orders the vertices of each rank, which can only make bags smaller. Empty if it
/// was stopped. O(pairs · depth · edges · separator) time.
[[nodiscard]] std::vector<std::uint32_t> dissection_ranks(const undirected_graph& g, const dissection_options& options);

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/treewidth/impl/dissection.hpp"
#endif
