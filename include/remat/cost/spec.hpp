// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
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

/// A cost model that is chosen while the program runs: one of those that a `--cost SPEC` can name.
///
/// Model of `cost_model` for graphs that are profiled and measured. What the chosen model needs and an operation lacks
/// (the graph says NaN) is a `bad_cost` that names the operation.
struct cost_spec {
  std::variant<measured_cost, roofline_cost, flops_cost, linear_cost, unit_cost> model;

  [[nodiscard]] std::string_view name() const noexcept {
    constexpr std::array<std::string_view, 5> names{"measured", "roofline", "flops", "linear", "unit"};
    return names[model.index()];
  }
  /// What a number of the model's time is: "s", or "" for a unit of its own.
  [[nodiscard]] std::string_view time_unit() const noexcept { return model.index() < 2 ? "s" : ""; }

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
        // A weight of zero makes a figure that is not known harmless.
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
    std::string text = "operation " + std::to_string(index(o));
    if constexpr (named_graph<G>) text += " (" + std::string(std::string_view(g.name(o))) + ")";
    throw bad_cost(text + " has no " + what + ", which the cost model " + std::string(name()) +
                   " needs for every operation");
  }
};

namespace detail::cost_parsing {

/// One `key=value` of a SPEC.
struct parameter {
  std::string_view key;
  double* value;
  bool positive;  // a divisor, so 0 is refused
};

[[noreturn]] inline void refuse(std::string_view spec, const std::string& message) {
  throw bad_argument("cost \"" + std::string(spec) + "\": " + message);
}

/// A whole decimal number, not "inf", "nan" or hexadecimal.
inline bool read_number(std::string_view text, double& value) {
  if (text.empty() || text.find_first_not_of("+-.0123456789Ee") != std::string_view::npos) return false;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size();
}

template <std::size_t N>
void read_parameters(std::string_view spec, std::string_view text, const std::array<parameter, N>& known) {
  std::array<bool, N> seen{};
  for (bool more = true; more;) {
    const auto comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
    const auto equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    std::size_t i = 0;
    while (i < N && known[i].key != key) ++i;
    if (i == N || equals == std::string_view::npos) {
      std::string names;
      for (const parameter& p : known) names += (names.empty() ? "" : ", ") + std::string(p.key) + "=NUMBER";
      refuse(spec, "\"" + std::string(item) + "\" is none of " + names);
    }
    if (seen[i]) refuse(spec, std::string(key) + " stands twice");
    seen[i] = true;
    double value = 0;
    if (!read_number(item.substr(equals + 1), value) || !std::isfinite(value) || value < 0 ||
        (known[i].positive && value == 0))
      refuse(spec, std::string(key) + " is \"" + std::string(item.substr(equals + 1)) + "\"; it must be a number " +
                       (known[i].positive ? "above 0" : "that is not negative"));
    *known[i].value = value;
  }
}

}  // namespace detail::cost_parsing

/// Reads a SPEC: `measured`, `roofline[:flops=F,bandwidth=B,latency=S]`, `flops`, `linear[:flops=X,bytes=Y]` or `unit`.
///
/// Parameters that are not named keep the model's defaults (of `linear`: flops=1, bytes=0).
/// Throws `bad_argument` that says what is wrong and what would be right.
[[nodiscard]] inline cost_spec parse_cost(std::string_view spec) {
  namespace parsing = detail::cost_parsing;
  const auto colon = spec.find(':');
  const std::string_view name = spec.substr(0, colon);
  const bool parameters = colon != std::string_view::npos;
  const std::string_view rest = parameters ? spec.substr(colon + 1) : std::string_view();
  if (name == "roofline") {
    roofline_cost model;
    if (parameters)
      parsing::read_parameters<3>(
          spec, rest,
          {{{"flops", &model.flops, true}, {"bandwidth", &model.bandwidth, true}, {"latency", &model.latency, false}}});
    return {model};
  }
  if (name == "linear") {
    linear_cost model;
    if (parameters)
      parsing::read_parameters<2>(spec, rest, {{{"flops", &model.flops, false}, {"bytes", &model.bytes, false}}});
    return {model};
  }
  cost_spec plain;
  if (name == "measured")
    plain.model = measured_cost{};
  else if (name == "flops")
    plain.model = flops_cost{};
  else if (name == "unit")
    plain.model = unit_cost{};
  else
    parsing::refuse(spec,
                    "there is no such model; it must be measured, roofline[:flops=…,bandwidth=…,latency=…], "
                    "flops, linear:flops=…,bytes=… or unit");
  if (parameters) parsing::refuse(spec, std::string(name) + " takes no parameters");
  return plain;
}

/// The model for a graph when none is named: `measured` where every operation has a measured time, else `roofline`.
/// O(operations).
template <class G>
requires profiled_graph<G> && measured_graph<G>
[[nodiscard]] cost_spec default_cost(const G& g) {
  for (std::size_t o = 0; o < static_cast<std::size_t>(g.num_operations()); ++o)
    if (std::isnan(static_cast<double>(g.measured_seconds(static_cast<op_id>(o))))) return {roofline_cost{}};
  return {measured_cost{}};
}

}  // namespace remat
