// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/problem/problem.hpp"
#include "support/random_graph.hpp"

namespace remat::test {

/// A step and a hierarchy of it.
struct divided_step {
  problem whole;
  operation_hierarchy hierarchy;

  /// One byte for each operation.
  [[nodiscard]] std::vector<std::uint8_t> forward() const {
    std::vector<std::uint8_t> out(whole.graph().num_operations, 0);
    for (std::uint32_t i = 0; i < hierarchy.num_forward; ++i) out[hierarchy.order[i]] = 1;
    return out;
  }
  [[nodiscard]] bool mixed_sums() const { return detail::has_mixed_sums(whole.graph(), forward()); }
  /// All groups but the whole step.
  [[nodiscard]] std::vector<detail::sub_graph> sub_graphs() const {
    detail::sub_graph_extractor extract(whole.graph(), hierarchy);
    std::vector<detail::sub_graph> out;
    for (std::size_t g = 1; g < hierarchy.groups.size(); ++g) out.push_back(extract(g));
    return out;
  }
};

[[nodiscard]] inline divided_step divide(problem p, std::uint32_t max_group, std::uint32_t max_top) {
  partition_options options;
  options.max_group = max_group;
  options.max_top = max_top;
  operation_hierarchy h = h_partition(p.graph(), options);
  return {std::move(p), std::move(h)};
}

/// A random step of 8 to 28 operations in groups of a few.
[[nodiscard]] inline divided_step random_divided_step(std::uint64_t seed) {
  random_graph_options kind = kind_of_graph(seed);
  kind.operations = 8 + static_cast<std::uint32_t>(seed % 21);
  return divide(random_problem(seed, kind), seed % 2 == 0 ? 4 : 6, seed % 3 == 0 ? 3 : 5);
}

}  // namespace remat::test
