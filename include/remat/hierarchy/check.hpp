// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "remat/hierarchy/hierarchy.hpp"
#include "remat/problem/problem.hpp"

namespace remat {

struct hierarchy_limits {
  std::uint32_t max_group = std::numeric_limits<std::uint32_t>::max();  ///< children of a group that is no sequence
  std::uint32_t max_top = std::numeric_limits<std::uint32_t>::max();    ///< of the whole step
};

/// What `check_hierarchy` found.
struct hierarchy_report {
  std::vector<std::string> violations{};  ///< at most ten, in words

  [[nodiscard]] bool valid() const noexcept { return violations.empty(); }
};

/// Whether `h` is a hierarchy of the step, from the definition alone: `order` holds the needed operations, each once,
/// in a topological order with the forward ones first; every group is one interval of the forward ones that its
/// children make up in turn, hence convex, and the backward operations that are anchored there; sequences are
/// sequences; the numbers of children are within the limits. It shares nothing with what makes hierarchies.
///
/// Which forward operation is the anchor of a backward one is not looked at. Never throws for a wrong hierarchy.
/// O((operations + reads and writes) · depth) time.
[[nodiscard]] hierarchy_report check_hierarchy(const flat_graph& s, const operation_hierarchy& h,
                                               const hierarchy_limits& limits = {});

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/hierarchy/impl/check.hpp"
#endif
