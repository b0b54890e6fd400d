// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/cost/flops.hpp"
#include "remat/cost/linear.hpp"
#include "remat/cost/measured.hpp"
#include "remat/cost/roofline.hpp"
#include "remat/cost/unit.hpp"
#include "remat/graph/concepts.hpp"

namespace remat {

/// A cost model that is chosen at run time: one of the models that `--cost SPEC` can name.
///
/// Models `cost_model` for graphs that are profiled and measured. `time` throws `bad_cost`, with the operation's name,
/// where an operation lacks a figure that the chosen model needs (the graph returns NaN).
struct cost_spec {
  /// The model, with its parameters.
  std::variant<measured_cost, roofline_cost, flops_cost, linear_cost, unit_cost> model;

  /// The name of the model, as it begins a SPEC.
  [[nodiscard]] std::string_view name() const noexcept {
    constexpr std::array<std::string_view, 5> names{"measured", "roofline", "flops", "linear", "unit"};
    return names[model.index()];
  }
  /// The unit of the model's times: "s", or "" for a unit of the model's own.
  [[nodiscard]] std::string_view time_unit() const noexcept { return model.index() < 2 ? "s" : ""; }

  /// Returns the time of operation `o`, in `time_unit()`. Throws `bad_cost` where a figure is missing.
  template <class G>
  requires profiled_graph<G> && measured_graph<G>
  [[nodiscard]] double time(const G& g, op_id o) const {
    switch (model.index()) {
      case 0:
        need(g, o, g.measured_seconds(o), "time_us");
        break;
      case 1:
        need(g, o, g.bytes_accessed(o), "bytes_accessed");
        [[fallthrough]];
      case 2:
        need(g, o, g.flops(o), "flops");
        break;
      case 3: {
        // A figure of weight 0 need not be known.
        const linear_cost& weights = std::get<linear_cost>(model);
        double sum = 0;
        if (weights.flops != 0) sum += weights.flops * need(g, o, g.flops(o), "flops");
        if (weights.bytes != 0) sum += weights.bytes * need(g, o, g.bytes_accessed(o), "bytes_accessed");
        return sum;
      }
      default:
        break;
    }
    return std::visit([&](const auto& m) { return static_cast<double>(m.time(g, o)); }, model);
  }

 private:
  template <class G>
  double need(const G& g, op_id o, double value, const char* what) const {
    if (!std::isnan(value)) return value;
    std::string operation = "operation " + std::to_string(index(o));
    if constexpr (named_graph<G>) operation += " (" + std::string(std::string_view(g.name(o))) + ")";
    refuse(operation, what);
  }

  /// Throws `bad_cost`: `operation` lacks the figure `what`.
  [[noreturn]] void refuse(const std::string& operation, const char* what) const;
};

/// Parses a SPEC: `measured`, `roofline[:flops=F,bandwidth=B,latency=S]`, `flops`, `linear[:flops=X,bytes=Y]` or
/// `unit`.
///
/// Parameters that the SPEC leaves out keep the model's defaults (`linear`: flops=1, bytes=0).
/// Throws `bad_argument` for anything else; the message shows what would be right.
[[nodiscard]] cost_spec parse_cost(std::string_view spec);

/// Returns the model for a graph where the user names none: `measured` where every operation has a measured time, else
/// `roofline`. O(operations) time.
template <class G>
requires profiled_graph<G> && measured_graph<G>
[[nodiscard]] cost_spec default_cost(const G& g) {
  for (std::size_t o = 0; o < static_cast<std::size_t>(g.num_operations()); ++o)
    if (std::isnan(static_cast<double>(g.measured_seconds(static_cast<op_id>(o))))) return {roofline_cost{}};
  return {measured_cost{}};
}

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/cost/impl/spec.hpp"
#endif
