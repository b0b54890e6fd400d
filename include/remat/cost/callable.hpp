// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>

#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"

namespace remat {

/// A cost model from a callable: `f(g, o)` or `f(o)` gives the time of operation `o`.
///
/// Example: `problem p(graph, callable_cost{[&](op_id o) { return seconds[index(o)]; }});`
template <class F>
struct callable_cost {
  F function;  ///< gives the time of an operation

  /// Returns what the callable gives for operation `o`.
  template <data_flow_graph G>
  requires std::is_invocable_r_v<double, const F&, const G&, op_id> || std::is_invocable_r_v<double, const F&, op_id>
  [[nodiscard]] constexpr double time(const G& g, op_id o) const {
    if constexpr (std::is_invocable_r_v<double, const F&, const G&, op_id>)
      return std::invoke(function, g, o);
    else
      return std::invoke(function, o);
  }
};

/// Deduces the type of the callable.
template <class F>
callable_cost(F) -> callable_cost<F>;

}  // namespace remat
