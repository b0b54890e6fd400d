// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"

namespace remat::test {

/// Classes of the groups of a hierarchy: the sub-graphs are the groups, by index.
struct group_classes : detail::sub_graph_classes {
  std::vector<detail::sub_graph> sub_graphs{};  ///< class → the representative, as `sub_graph_extractor` gives it
};

/// Classes of all groups of the hierarchy `h` of the graph `g`.
[[nodiscard]] inline group_classes classify(const flat_graph& g, const operation_hierarchy& h,
                                            const detail::isomorphism_options& options = {}) {
  detail::sub_graph_extractor extract(g, h);
  std::vector<detail::sub_graph> sub_graphs;
  for (std::uint32_t i = 0; i < h.groups.size(); ++i) sub_graphs.push_back(extract(i));
  group_classes out;
  static_cast<detail::sub_graph_classes&>(out) = detail::classify(sub_graphs, options);
  for (const std::uint32_t i : out.representative) out.sub_graphs.push_back(std::move(sub_graphs[i]));
  return out;
}

}  // namespace remat::test
