// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

namespace remat::detail {

/// The score of a vertex in a greedy elimination: a vertex of least score is eliminated next.
enum class elimination_rule : std::uint8_t {
  min_degree,       ///< the number of its neighbours
  min_fill,         ///< the number of edges that its elimination adds
  fill_and_degree,  ///< the sum of both
  sparsest          ///< added edges in proportion to the square of the number of neighbours
};

}  // namespace remat::detail
