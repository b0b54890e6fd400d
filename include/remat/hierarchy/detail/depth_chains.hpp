// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/chain/detail/forward_line.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"

namespace remat::detail {

/// The forward line of a hierarchy: its forward operations in the hierarchy's order, and the backward operations as
/// listed. O(operations + reads and writes) time.
[[nodiscard]] forward_line line_of(const flat_graph& g, const operation_hierarchy& h);

/// The chain of a hierarchy at a depth: cuts of `line_of` at the borders of the groups of this depth, and around the
/// operations and groups above it that have no children there. Depth 1 has the children of the whole graph as stages.
/// Returns no cut for depth 0. O(children of all groups) time.
[[nodiscard]] cut_list cuts_at_depth(const operation_hierarchy& h, std::uint32_t depth);

/// The chains of a hierarchy, without repetition: for each depth the cuts of `cuts_at_depth`, every second, third,
/// fourth, sixth, eighth and twelfth of them, and selections that leave 4 to 45 stages of about equal bytes. Where a
/// depth has more than `max_stages` − 1 cuts, a selection of at most as many replaces them; other lists of more cuts
/// are left out. Short ones first. `line` is `line_of` the hierarchy. O(operations · depth · log(depth)) time.
[[nodiscard]] std::vector<cut_list> chains_of(const operation_hierarchy& h, const forward_line& line,
                                              std::size_t max_stages);

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/hierarchy/impl/depth_chains.hpp"
#endif
