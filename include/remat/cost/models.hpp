// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "remat/core/id.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/graph/detail/label.hpp"

namespace REMAT_NAMESPACE {

/// \file
/// The library's cost models (see `cost_model`), and the choice of one of them at run time.

namespace detail::models {

/// Throws `bad_cost`: `operation` has no `figure`, which `model` needs.
[[noreturn]] void refuse_missing(const std::string& operation, std::string_view figure, std::string_view model);

/// Returns `value`, a figure of operation `o`. Throws `bad_cost` if it is not known (NaN).
template <class G>
[[nodiscard]] constexpr double known(const G& g, op_id o, double value, std::string_view figure,
                                     std::string_view model) {
  if (value != value) refuse_missing(label(g, o), figure, model);  // std::isnan is not constexpr
  return value;
}

}  // namespace detail::models

/// Every operation takes one unit of time: the time of a schedule is its number of computes.
struct unit_cost {
  static constexpr std::string_view name = "unit";  ///< The model's name in a SPEC.

  /// Returns 1 for every operation.
  template <data_flow_graph G>
  [[nodiscard]] constexpr double time(const G&, op_id) const noexcept {
    return 1.0;
  }
};

/// The time of an operation is its number of floating-point operations.
struct flops_cost {
  static constexpr std::string_view name = "flops";  ///< The model's name in a SPEC.

  /// Returns the floating-point operations of operation `o`. Throws `bad_cost` if the graph does not know them.
  template <profiled_graph G>
  [[nodiscard]] constexpr double time(const G& g, op_id o) const {
    return detail::models::known(g, o, static_cast<double>(g.flops(o)), "flops", name);
  }
};

/// The time of an operation is a weighted sum: flops × `flops` + bytes accessed × `bytes`.
struct linear_cost {
  double flops = 1.0;  ///< time for a floating-point operation
  double bytes = 0.0;  ///< time for a byte of memory traffic

  static constexpr std::string_view name = "linear";  ///< The model's name in a SPEC.

  /// Returns the time of operation `o`, in the unit of the weights. Throws `bad_cost` for a figure that the graph does
  /// not know; one of weight 0 need not be known.
  template <profiled_graph G>
  [[nodiscard]] constexpr double time(const G& g, op_id o) const {
    using detail::models::known;
    return (flops == 0 ? 0 : flops * known(g, o, static_cast<double>(g.flops(o)), "flops", name)) +
           (bytes == 0 ? 0 : bytes * known(g, o, static_cast<double>(g.bytes_accessed(o)), "bytes_accessed", name));
  }
};

/// Seconds by the roofline: latency + max(flops / F, bytes accessed / B) \cite williams2009roofline.
///
/// The defaults are an A100's (156 TFLOP/s in TF32, 1.555 TB/s) with 4 µs for a launch.
struct roofline_cost {
  double flops = 156e12;        ///< F, floating-point operations a second
  double bandwidth = 1.555e12;  ///< B, bytes a second
  double latency = 4e-6;        ///< seconds for each operation

  static constexpr std::string_view name = "roofline";  ///< The model's name in a SPEC.

  /// Returns the time of operation `o`, in seconds. Throws `bad_cost` for a figure that the graph does not know.
  template <profiled_graph G>
  [[nodiscard]] constexpr double time(const G& g, op_id o) const {
    using detail::models::known;
    return latency +
           std::max(known(g, o, static_cast<double>(g.flops(o)), "flops", name) / flops,
                    known(g, o, static_cast<double>(g.bytes_accessed(o)), "bytes_accessed", name) / bandwidth);
  }
};

/// The time of an operation is its measured time in the graph, in seconds.
struct measured_cost {
  static constexpr std::string_view name = "measured";  ///< The model's name in a SPEC.

  /// Returns the measured time of operation `o`, in seconds. Throws `bad_cost` if it was not measured.
  template <measured_graph G>
  [[nodiscard]] constexpr double time(const G& g, op_id o) const {
    return detail::models::known(g, o, static_cast<double>(g.measured_seconds(o)), "time_us", name);
  }
};

/// A cost model from a callable: `f(g, o)` or `f(o)` gives the time of operation `o`.
///
/// Example: `problem p(graph, callable_cost{[&](op_id o) { return seconds[index(o)]; }});`
template <class F>
struct callable_cost {
  F function;  ///< gives the time of an operation

  /// The model that asks `f`.
  constexpr explicit callable_cost(F f) : function(std::move(f)) {}

  /// Returns the time that the callable gives for operation `o`.
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

/// A cost model that is chosen at run time: one of the models that `--cost SPEC` can name.
///
/// Models `cost_model` for graphs that are profiled and measured. `time` throws `bad_cost`, with the operation's name,
/// if an operation lacks a figure that the chosen model needs (the graph returns NaN).
struct cost_spec {
  /// The model, with its parameters.
  std::variant<measured_cost, roofline_cost, flops_cost, linear_cost, unit_cost> model;

  /// The name of the model, as it begins a SPEC.
  [[nodiscard]] std::string_view name() const {
    return std::visit([](const auto& m) { return m.name; }, model);
  }
  /// The unit of the model's times: "s", or "" for a unit of the model's own.
  [[nodiscard]] std::string_view time_unit() const noexcept {
    return chosen<measured_cost>() || chosen<roofline_cost>() ? "s" : "";
  }

  /// Returns the time of operation `o`, in `time_unit()`. Throws `bad_cost` if a figure is missing.
  template <class G>
  requires profiled_graph<G> && measured_graph<G>
  [[nodiscard]] double time(const G& g, op_id o) const {
    return std::visit([&](const auto& m) { return static_cast<double>(m.time(g, o)); }, model);
  }

 private:
  template <class Model>
  [[nodiscard]] bool chosen() const noexcept {
    return std::holds_alternative<Model>(model);
  }
};

/// Parses a SPEC: `measured`, `roofline[:flops=F,bandwidth=B,latency=S]`, `flops`, `linear[:flops=X,bytes=Y]` or
/// `unit`.
///
/// Parameters that the SPEC leaves out keep the model's defaults (`linear`: flops=1, bytes=0).
/// Throws `bad_argument` for anything else; the message shows the expected form.
[[nodiscard]] cost_spec parse_cost(std::string_view spec);

/// Returns the model for a graph if the user names none: `measured` if every operation has a measured time, else
/// `roofline`. O(operations) time.
template <class G>
requires profiled_graph<G> && measured_graph<G>
[[nodiscard]] cost_spec default_cost(const G& g) {
  for (std::size_t o = 0; o < static_cast<std::size_t>(g.num_operations()); ++o)
    if (std::isnan(static_cast<double>(g.measured_seconds(static_cast<op_id>(o))))) return {roofline_cost{}};
  return {measured_cost{}};
}

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/cost/impl/models.hpp"
#endif
