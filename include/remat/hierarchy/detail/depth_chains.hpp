// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "remat/chain/detail/forward_line.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE::detail {

/// The forward line of a hierarchy: its forward operations in the hierarchy's order, and the backward operations as
/// listed. O(operations + reads and writes) time.
[[nodiscard]] inline forward_line line_of(const flat_graph& g, const operation_hierarchy& h) {
  std::vector<std::uint32_t> forward(h.order.begin(), h.order.begin() + h.num_forward);
  std::vector<std::uint32_t> rest(h.order.begin() + h.num_forward, h.order.end());
  std::sort(rest.begin(), rest.end());
  return make_forward_line(g, std::move(forward), std::move(rest));
}

/// The chain of a hierarchy at a depth: cuts of `line_of` at the borders of the groups of this depth, and around the
/// operations and groups above it that have no children there. Depth 1 has the children of the whole graph as stages.
/// Returns no cut for depth 0. O(children of all groups) time.
[[nodiscard]] inline cut_list cuts_at_depth(const operation_hierarchy& h, std::uint32_t depth) {
  std::vector<std::uint8_t> cut(std::size_t{h.num_forward} + 1, 0);
  for (std::uint32_t g = 0; g < h.groups.size(); ++g) {
    const operation_hierarchy::group& group = h.groups[g];
    if (group.depth >= depth) continue;
    std::uint32_t at = group.forward_begin;
    for (const std::uint32_t child : h.children[g]) {
      cut[at] = 1;
      at = h.is_group(child) ? h.groups[h.group_at(child)].forward_end : at + 1;
    }
  }
  cut_list out;
  for (std::uint32_t i = 1; i < h.num_forward; ++i)
    if (cut[i]) out.push_back(i);
  return out;
}

/// The chains of a hierarchy, without repetition: for each depth the cuts of `cuts_at_depth`, every second, third,
/// fourth, sixth, eighth and twelfth of them, and selections that leave 4 to 45 stages of about equal bytes. If a
/// depth has more than `max_stages` − 1 cuts, a selection of at most as many replaces them; other lists of more cuts
/// are left out. Short ones first. `line` is `line_of` the hierarchy. O(operations · depth · log(depth)) time.
[[nodiscard]] inline std::vector<cut_list> chains_of(const operation_hierarchy& h, const forward_line& line,
                                                     std::size_t max_stages) {
  std::vector<cut_list> out;
  for (std::uint32_t depth = 1; depth <= h.depth() + 1; ++depth) {
    const cut_list all = cuts_at_depth(h, depth);
    out.push_back(all.size() < max_stages ? all : even_cuts(line, all, max_stages));
    add_regular_cuts(out, all, max_stages);
    add_even_cuts(out, line, all, max_stages);
  }
  return short_ones_first(std::move(out));
}

}  // namespace REMAT_NAMESPACE::detail
