// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>

#include "remat/treewidth/undirected_graph.hpp"

namespace remat::detail {

/// A lower bound on the treewidth (minor-min-width, also called contraction degeneracy).
///
/// The least degree of a graph is a lower bound on its treewidth, and contracting an edge does not increase the
/// treewidth. So the largest least degree met while edges are contracted is a lower bound, too. Each step contracts a
/// vertex of least degree into the neighbour with which it has the fewest neighbours in common (least-c, Bodlaender and
/// Koster \cite bodlaender2011lower). Ties are broken at random by `seed`.
///
/// `stop` is asked every fraction of a millisecond. Once it answers true, the bound found so far is returned.
/// O(vertices · largest degree of the contracted graphs · log) time.
[[nodiscard]] std::uint32_t contraction_bound(const undirected_graph& g, std::uint64_t seed = 0,
                                              const std::function<bool()>* stop = nullptr);

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/treewidth/impl/width_bound.hpp"
#endif
