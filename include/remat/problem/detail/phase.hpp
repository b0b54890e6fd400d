// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include "remat/problem/problem.hpp"

namespace remat::detail {

/// Returns the *turn*: the position in the listed order where the forward pass ends. Operations listed before it belong
/// to the forward pass and the loss; the first operation at or after it belongs to the backward pass.
///
/// The graph's own phases decide where all operations have one, at least one operation is backward and one is not, and
/// no forward operation or loss is listed behind a backward one. Otherwise `estimate_forward_end` decides.
/// O(operations) time where the phases decide.
[[nodiscard]] std::uint32_t find_forward_end(const flat_graph& g);

/// Estimates the turn from lifetimes alone: the last operation before which the most tensors are alive in the listed
/// order of the needed operations. The forward pass makes tensors that the backward pass reads, so their number grows
/// until the turn. Final outputs do not count. Returns `num_operations` for a graph without operations. O(operations +
/// reads and writes) time.
[[nodiscard]] std::uint32_t estimate_forward_end(const flat_graph& g);

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/problem/impl/phase.hpp"
#endif
