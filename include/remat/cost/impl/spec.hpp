// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/cost/spec.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace remat {

namespace detail::cost_parsing {

/// One `key=value` of a SPEC.
struct parameter {
  std::string_view key;
  double* value;
  bool positive;  // 0 is not allowed
};

[[noreturn]] inline void refuse(std::string_view spec, const std::string& message) {
  throw bad_argument("cost \"" + std::string(spec) + "\": " + message);
}

/// Reads a decimal number that fills the whole text. Returns false for anything else, also for "inf" and "nan".
inline bool read_number(std::string_view text, double& value) {
  if (text.empty() || text.find_first_not_of("+-.0123456789Ee") != std::string_view::npos) return false;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc() && end == text.data() + text.size();
}

/// Reads `key=value,…` into the values of the known parameters.
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

REMAT_INLINE void cost_spec::refuse(const std::string& operation, const char* what) const {
  throw bad_cost(operation + " has no " + what + ", which the cost model " + std::string(name()) +
                 " needs for every operation");
}

REMAT_INLINE cost_spec parse_cost(std::string_view spec) {
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

}  // namespace remat
