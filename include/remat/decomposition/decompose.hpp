// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <utility>

#include "remat/core/control.hpp"
#include "remat/decomposition/elimination_order.hpp"
#include "remat/decomposition/tree_decomposition.hpp"
#include "remat/decomposition/undirected_graph.hpp"

namespace remat {

struct decompose_options {
  run_control run{};
};

/// A tree decomposition, and how good it is.
struct decomposition_result {
  tree_decomposition tree{};
  std::int64_t width = -1;        ///< of `tree`
  std::int64_t lower_bound = -1;  ///< proven: the treewidth is not less
  bool proven = false;            ///< `width` is the treewidth
};

/// A tree decomposition of small width, by the elimination order of least fill.
[[nodiscard]] inline decomposition_result decompose(const undirected_graph& g, const decompose_options& options = {}) {
  decomposition_result out;
  out.tree = decomposition_of(g, elimination_order(g, elimination_rule::min_fill, options.run.seed));
  out.width = out.tree.width();
  return out;
}

}  // namespace remat
