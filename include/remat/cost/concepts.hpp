// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstdint>

#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"

namespace REMAT_NAMESPACE {

/// The costs of a graph's operations and tensors. A cost model is separate from the graph: one graph has many models.
///
/// Syntax: `c.time(g, o)`, the time of one run of operation `o`, in a unit of the model's own (seconds in `roofline`
/// and `measured`); it must be finite and not negative. Optional: `c.bytes(g, t)` and `c.workspace(g, o)` in bytes,
/// which then take precedence over the graph's own. Semantics: pure functions. They are called once for each operation
/// (tensor) when a `problem` is built. Models: `unit_cost`, `flops_cost`, `linear_cost`, `roofline_cost`,
/// `measured_cost`, `callable_cost`, `fitted_cost`, `measured_times`.
template <class C, class G>
concept cost_model = data_flow_graph<G> && requires(const C& c, const G& g, op_id o) {
  { c.time(g, o) } -> std::convertible_to<double>;
};

/// Refinement: the model gives the bytes of tensors.
template <class C, class G>
concept sizing_cost_model = cost_model<C, G> && requires(const C& c, const G& g, tensor_id t) {
  { c.bytes(g, t) } -> std::convertible_to<std::int64_t>;
};

/// Refinement: the model gives the bytes of workspace.
template <class C, class G>
concept workspace_cost_model = cost_model<C, G> && requires(const C& c, const G& g, op_id o) {
  { c.workspace(g, o) } -> std::convertible_to<std::int64_t>;
};

/// Returns the bytes of tensor `t`: the model's if it gives them, otherwise the graph's.
template <class G, class C>
requires cost_model<C, G> &&(sizing_cost_model<C, G> || sized_graph<G>) [[nodiscard]] constexpr std::int64_t
    bytes_of(const C& c, const G& g, tensor_id t) {
  if constexpr (sizing_cost_model<C, G>)
    return c.bytes(g, t);
  else
    return g.bytes(t);
}

/// Returns the bytes of workspace of operation `o`: the model's if it gives them, otherwise the graph's, otherwise 0.
template <class G, class C>
requires cost_model<C, G>
[[nodiscard]] constexpr std::int64_t workspace_of(const C& c, const G& g, op_id o) {
  if constexpr (workspace_cost_model<C, G>)
    return c.workspace(g, o);
  else if constexpr (workspace_graph<G>)
    return g.workspace(o);
  else
    return 0;
}

}  // namespace REMAT_NAMESPACE
