// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "remat/treewidth/tree_decomposition.hpp"
#include "remat/treewidth/undirected_graph.hpp"

namespace remat {

/// The result of `check_decomposition`.
struct decomposition_report {
  std::vector<std::string> violations;  ///< at most ten, in words; vertices and bags are counted from 0
  std::int64_t width = -1;              ///< the size of the largest bag less one

  /// True when the checker found no violation.
  [[nodiscard]] bool valid() const noexcept { return violations.empty(); }
};

/// Checks that `t` is a tree decomposition of `g`, from the definition alone: the bags hold vertices, each once; the
/// edges make a tree; every vertex is in a bag; both ends of every edge are in one bag; the bags of each vertex are
/// connected in the tree. The checker shares no code with the functions that make decompositions.
///
/// A graph without vertices has the decomposition without bags. Never throws for a wrong decomposition.
/// O(sum of bag sizes + sum over the graph's edges of (bags that hold one end) · log) time.
[[nodiscard]] decomposition_report check_decomposition(const undirected_graph& g, const tree_decomposition& t);

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/treewidth/impl/check.hpp"
#endif
