// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>

#include "remat/treewidth/tree_decomposition.hpp"
#include "remat/treewidth/undirected_graph.hpp"

namespace remat::detail {

/// The outcome of a search for a decomposition of a given width.
enum class width_verdict : std::uint8_t {
  found,      ///< a decomposition of the width was found
  refuted,    ///< it is proven that no such decomposition exists
  unfinished  ///< stopped by a limit
};

/// The answer of `decide_width`.
struct width_decision {
  width_verdict verdict = width_verdict::unfinished;  ///< the outcome of the search
  tree_decomposition tree{};                          ///< if found: of at most the given width
};

/// The limits of `decide_width`.
struct width_search_limits {
  std::size_t bytes = std::size_t{1} << 29U;                       ///< of tables
  std::uint64_t work = std::numeric_limits<std::uint64_t>::max();  ///< pairs of sets and candidate bags
  const std::function<bool()>* stop = nullptr;  ///< asked every few milliseconds; true ends the search
  std::uint64_t* spent = nullptr;               ///< if given, becomes the work done
};

/// The largest connected component that `decide_width` searches, in vertices; a larger one is `unfinished` at once.
inline constexpr std::size_t most_for_exact_width = 1024;

/// Decides whether a graph has a tree decomposition of width k, and finds one.
///
/// Positive-instance driven dynamic programming over potential maximal cliques (Tamaki \cite tamaki2017positive, on the
/// ground of Bouchitté and Todinca \cite bouchitte2001treewidth). A connected set C is *feasible* if it and its border
/// have a decomposition of width k with the border in one bag. Feasible sets are found from smaller ones: a bag K whose
/// parts (of the graph without K) are all feasible but one, D, makes what lies on this side of D's border feasible.
/// Only sets are kept that are on the lesser side of their border (Tamaki's *inbound* ones): some other part with the
/// same border has a lesser least vertex. If all parts of a bag are feasible, it is the root of a decomposition.
///
/// Differs from the paper in how bags are found: a vertex v of K outside of D's border is joined, in K, only to its
/// neighbours and to the borders of parts that v is beside. So K is the neighbourhood of v and of a union of feasible
/// sets that all have v in their borders; unions are kept for each v, and sets that lie far apart are never joined.
/// A bag that still lacks a part waits for it.
///
/// Exponential time and memory at worst, for instance if many parts share one border: reduce the graph first
/// (`reduce`), and split it at safe separators. `limits` bound both.
[[nodiscard]] width_decision decide_width(const undirected_graph& g, std::uint32_t k,
                                          const width_search_limits& limits = {});

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/treewidth/impl/positive_instance.hpp"
#endif
