// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <string_view>
#include <utility>

#include "remat/core/id.hpp"
#include "remat/core/option.hpp"

namespace REMAT_NAMESPACE {

/// A range whose elements convert to `Id`.
template <class R, class Id>
concept id_range = std::ranges::input_range<R> && std::convertible_to<std::ranges::range_reference_t<R>, Id>;

/// The data-flow graph of one training step: a bipartite directed acyclic graph of operations and tensors.
///
/// Syntax: the five members below. A graph that knows more says so in optional members, each a refinement below:
/// `bytes`, `workspace`, `always_resident`, `recomputable`, `deterministic`, `phase`, `flops` with `bytes_accessed`,
/// `measured_seconds`, `name`. Semantics:
///  - ids are 0 … n − 1, and the order of the operations' ids is a topological order: it is the baseline schedule that
///    recomputes nothing;
///  - a tensor without a producer exists before the step and is not counted against a budget (a parameter, an input);
///  - a tensor with several producers accumulates: it is readable only when all of them have run since it was last
///    allocated;
///  - an operation without outputs has an effect outside the graph, and runs exactly once;
///  - `final_outputs()` must be in memory when the training step ends.
/// Complexity: `inputs`, `outputs` O(1) apart from the iteration. The library reads a graph once, when a `problem` is
/// built, and keeps indices only.
/// Models: `training_graph`, `boost_view` over a Boost.Graph graph, and every user's type with these members.
template <class G>
concept data_flow_graph = requires(const G& g, op_id o) {
  { g.num_operations() } -> std::convertible_to<std::size_t>;
  { g.num_tensors() } -> std::convertible_to<std::size_t>;
  { g.inputs(o) } -> id_range<tensor_id>;
  { g.outputs(o) } -> id_range<tensor_id>;
  { g.final_outputs() } -> id_range<tensor_id>;
};

/// Refinement: the graph knows the bytes of its tensors. Otherwise the cost model must.
template <class G>
concept sized_graph = data_flow_graph<G> && requires(const G& g, tensor_id t) {
  { g.bytes(t) } -> std::convertible_to<std::int64_t>;
};

/// Refinement: the graph knows the bytes of workspace that an operation uses while it runs (otherwise 0).
template <class G>
concept workspace_graph = data_flow_graph<G> && requires(const G& g, op_id o) {
  { g.workspace(o) } -> std::convertible_to<std::int64_t>;
};

/// Refinement: the graph says which tensors are resident all the time and not counted (otherwise: those without a
/// producer).
template <class G>
concept residency_graph = data_flow_graph<G> && requires(const G& g, tensor_id t) {
  { g.always_resident(t) } -> std::convertible_to<bool>;
};

/// Refinement: the graph says which operations may run more than once (otherwise: all of them, apart from those without
/// outputs).
template <class G>
concept recomputable_graph = data_flow_graph<G> && requires(const G& g, op_id o) {
  { g.recomputable(o) } -> std::convertible_to<bool>;
};

/// Refinement: the graph says which operations are random (otherwise: none). A random operation may run again: its
/// kernel gets the same seed each time in one training step (`kernel_call::seed`). A device whose launches are captured
/// once needs to know of it.
template <class G>
concept deterministic_graph = data_flow_graph<G> && requires(const G& g, op_id o) {
  { g.deterministic(o) } -> std::convertible_to<bool>;
};

/// The pass of the training step to which an operation belongs. The loss ends the forward pass.
enum class op_phase : std::uint8_t { forward, loss, backward, unknown };

/// The names of the phases. Files of graphs have the first three, and none for a phase that is not known.
template <>
struct enum_names<op_phase> {
  /// Value and name.
  static constexpr std::array<std::pair<op_phase, std::string_view>, 4> all{{{op_phase::forward, "forward"},
                                                                             {op_phase::loss, "loss"},
                                                                             {op_phase::backward, "backward"},
                                                                             {op_phase::unknown, "unknown"}}};
};

/// Refinement: the graph knows the phase of its operations (otherwise, and where it is `op_phase::unknown`, solvers
/// estimate where the backward pass begins: see `find_forward_end`).
template <class G>
concept phased_graph = data_flow_graph<G> && requires(const G& g, op_id o) {
  { g.phase(o) } -> std::convertible_to<op_phase>;
};

/// Refinement: the graph knows the floating-point operations and the bytes of memory traffic of its operations.
template <class G>
concept profiled_graph = data_flow_graph<G> && requires(const G& g, op_id o) {
  { g.flops(o) } -> std::convertible_to<double>;
  { g.bytes_accessed(o) } -> std::convertible_to<double>;
};

/// Refinement: the graph knows the measured seconds of its operations.
template <class G>
concept measured_graph = data_flow_graph<G> && requires(const G& g, op_id o) {
  { g.measured_seconds(o) } -> std::convertible_to<double>;
};

/// Refinement: operations and tensors have names (for messages and reports).
template <class G>
concept named_graph = data_flow_graph<G> && requires(const G& g, op_id o, tensor_id t) {
  { g.name(o) } -> std::convertible_to<std::string_view>;
  { g.name(t) } -> std::convertible_to<std::string_view>;
};

/// Refinement: the graph knows from which line of the user's program an operation comes, its path in the words of the
/// framework, and the line of a tensor if it is not the one of its producer (for reports; each may be empty).
template <class G>
concept sourced_graph = data_flow_graph<G> && requires(const G& g, op_id o, tensor_id t) {
  { g.source(o) } -> std::convertible_to<std::string_view>;
  { g.scope(o) } -> std::convertible_to<std::string_view>;
  { g.source(t) } -> std::convertible_to<std::string_view>;
};

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
