// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/core/id.hpp"

namespace remat::detail {

/// The least time of any choice within the room at one moment, between two bounds.
struct moment_optimum {
  double lower = 0;                                        ///< no choice takes less time
  double upper = std::numeric_limits<double>::infinity();  ///< the time of the best choice found
  moment_choice choice{};                                  ///< the best choice found
  std::vector<tensor_id> saved{};                          ///< its resident tensors, ascending
  std::vector<op_id> again{};                              ///< the operations that it runs again, ascending
  std::uint32_t nodes = 0;                                 ///< of branch and bound
  std::uint32_t flows = 0;                                 ///< maximum flows that were run
  bool infeasible = false;                                 ///< proven: no choice fits into the room
};

/// Searches for the least time of any choice with at most `room` resident bytes, by branch and bound. A price of a byte
/// relaxes the problem: it lets a part of a tensor be resident. The search takes whole tensors.
///
/// A node fixes some tensors, and the best price gives its bound (`moment_cut`). The search branches on the largest
/// tensor that is resident on one side of that price and not on the other. The node with the lowest bound is next.
/// The search ends when no open node can improve the best choice by more than `tolerance` (time), after `most_nodes`
/// nodes, or when `stop()` returns true, which is polled before each wave of a flow. Then `lower` is the least bound of
/// an open node: it is never below the bound without branching, and equal to `upper` up to `tolerance` when no node is
/// open.
/// `price` is the first price to try. Precondition: `cut` is at the moment, and nothing is fixed; it is left so.
[[nodiscard]] moment_optimum find_moment_optimum(moment_cut& cut, std::int64_t room, double price, double tolerance,
                                                 std::uint32_t most_nodes, const std::function<bool()>& stop = {});

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/bound/impl/moment_branch.hpp"
#endif
