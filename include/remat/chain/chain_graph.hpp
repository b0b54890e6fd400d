// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/chain/chain.hpp"
#include "remat/graph/training_graph.hpp"

namespace REMAT_NAMESPACE {

/// The training step of a chain as a data-flow graph, for solvers of graphs: copies to the host, memory plans,
/// executors.
///
/// The forward of stage i reads x_{i−1}; it makes x_i and the rest of x̄_i, of x̄_i − x_i bytes. The loss reads x_L and
/// makes the gradient of x_L. The backward of stage i reads x_{i−1}, x_i, the rest of x̄_i and the gradient of x_i, and
/// makes the gradient of x_{i−1}. φ_i and β_i are workspace, and each operation has its time in the chain as measured
/// time (`measured_cost`). x_0 is an input, which is always resident and not counted: the budget of the graph is the
/// budget of the chain less x_0. A rest without bytes is left out. Further options of a stage are not in the graph.
///
/// The graph needs more memory than `simulate` counts in two places. Both gradients of a backward are there while it
/// runs. A forward that keeps less than x̄_i makes all of it, and frees the rest afterwards; this matters only if a
/// larger gradient waits at that time than when the stage runs for its backward. O(L) time.
///
///     const problem p = problem(chain_graph(c), measured_cost{}, budget).with_link(link);
[[nodiscard]] training_graph chain_graph(const chain& c);

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/chain/impl/chain_graph.hpp"
#endif
