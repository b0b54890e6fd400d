// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"

namespace remat {

/// The numbers of children that `check_hierarchy` allows. By default any number is allowed.
struct hierarchy_limits {
  std::uint32_t max_group =
      std::numeric_limits<std::uint32_t>::max();                      ///< most children of a group that is no sequence
  std::uint32_t max_top = std::numeric_limits<std::uint32_t>::max();  ///< most children of the whole graph, likewise
};

/// The result of `check_hierarchy`.
struct hierarchy_report {
  std::vector<std::string> violations{};  ///< at most ten, in words

  /// True when the checker found no violation.
  [[nodiscard]] bool valid() const noexcept { return violations.empty(); }
};

/// Checks from the definition that `h` is a hierarchy of the graph. `order` must hold the needed operations, each once,
/// in a topological order with the forward ones first. Every group must be one interval of forward operations, divided
/// among its children in turn and hence convex, and the backward operations that are anchored there. The marks of
/// sequences must be right, and the numbers of children within the limits. The checker shares no code with the
/// partitions.
///
/// The rule by which a backward operation gets its anchor is not checked. Never throws for a wrong hierarchy, which may
/// be that of another graph. O((operations + reads and writes) · depth) time.
[[nodiscard]] hierarchy_report check_hierarchy(const flat_graph& graph, const operation_hierarchy& h,
                                               const hierarchy_limits& limits = {});

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/hierarchy/impl/check.hpp"
#endif
