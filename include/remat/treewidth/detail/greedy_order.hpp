// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "remat/treewidth/detail/elimination_rule.hpp"
#include "remat/treewidth/undirected_graph.hpp"

namespace remat::detail {

namespace eliminating {

struct greedy_options {
  elimination_rule rule = elimination_rule::min_fill;
  std::uint64_t seed = 0;  ///< breaks ties
  /// Vertex → its rank, below 65536. Vertices of lower rank are eliminated first. Empty: all ranks are the same.
  std::span<const std::uint32_t> rank{};
  std::uint32_t give_up = undirected_graph::none;  ///< ends without an order as soon as the width reaches this
  const std::function<bool()>* stop = nullptr;     ///< asked every fraction of a millisecond; true ends the elimination
  /// If given, a stop leaves the other vertices in any order, and `*eliminated` is the number of vertices before them.
  std::size_t* eliminated = nullptr;
};

/// A greedy elimination order. Empty where it gave up, and where it was stopped without `eliminated`. When the vertices
/// that are left cannot make the order wider, they are appended by rank.
/// Time and memory as `elimination_order`.
[[nodiscard]] std::vector<std::uint32_t> greedy_order(const undirected_graph& g, const greedy_options& options);

}  // namespace eliminating

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/treewidth/impl/greedy_order.hpp"
#endif
