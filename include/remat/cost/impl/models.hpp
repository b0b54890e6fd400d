// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/cost/models.hpp"

#include <charconv>
#include <system_error>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE {

namespace detail::models {

/// One `key=value` of a SPEC.
struct parameter {
  std::string_view key;
  double* value;
  bool positive;  // 0 is not allowed
};

[[noreturn]] inline void refuse(std::string_view spec, const std::string& message) {
  throw bad_argument("cost \"" + std::string(spec) + "\": " + message);
}

/// Reads the parameters of a SPEC, `key=value,…` after a colon, into the values of the `known` ones.
inline void read_parameters(std::string_view spec, const std::vector<parameter>& known) {
  const auto colon = spec.find(':');
  if (colon == std::string_view::npos) return;
  if (known.empty()) refuse(spec, std::string(spec.substr(0, colon)) + " takes no parameters");
  std::vector<std::string_view> seen;
  for (std::size_t from = colon + 1, end = 0; from <= spec.size(); from = end + 1) {
    end = std::min(spec.find(',', from), spec.size());
    const std::string_view item = spec.substr(from, end - from);
    const auto equals = std::min(item.find('='), item.size());
    const std::string_view key = item.substr(0, equals);
    const auto p = std::find_if(known.begin(), known.end(), [&](const parameter& x) { return x.key == key; });
    if (p == known.end() || equals == item.size()) {
      std::string names;
      for (const parameter& x : known) names += (names.empty() ? "" : ", ") + std::string(x.key) + "=NUMBER";
      refuse(spec, "\"" + std::string(item) + "\" is none of " + names);
    }
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) refuse(spec, std::string(key) + " is given twice");
    seen.push_back(key);
    const std::string_view number = item.substr(equals + 1);
    double& value = *p->value;
    const auto [stop, code] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (code != std::errc() || stop != number.data() + number.size() || !std::isfinite(value) || value < 0 ||
        (p->positive && value == 0))
      refuse(spec, std::string(key) + " is \"" + std::string(number) + "\"; it must be a number " +
                       (p->positive ? "above 0" : "that is not negative"));
  }
}

REMAT_INLINE void refuse_missing(const std::string& operation, std::string_view figure, std::string_view model) {
  throw bad_cost(operation + " has no " + std::string(figure) + ", which the cost model " + std::string(model) +
                 " needs for every operation");
}

}  // namespace detail::models

REMAT_INLINE cost_spec parse_cost(std::string_view spec) {
  const std::string_view name = spec.substr(0, spec.find(':'));
  roofline_cost roofline;
  linear_cost linear;
  if (name == "roofline") {
    detail::models::read_parameters(spec, {{"flops", &roofline.flops, true},
                                           {"bandwidth", &roofline.bandwidth, true},
                                           {"latency", &roofline.latency, false}});
    return {roofline};
  }
  if (name == "linear") {
    detail::models::read_parameters(spec, {{"flops", &linear.flops, false}, {"bytes", &linear.bytes, false}});
    return {linear};
  }
  if (name != "measured" && name != "flops" && name != "unit")
    detail::models::refuse(spec,
                           "there is no such model; it must be measured, roofline[:flops=…,bandwidth=…,latency=…], "
                           "flops, linear:flops=…,bytes=… or unit");
  detail::models::read_parameters(spec, {});
  if (name == "measured") return {measured_cost{}};
  if (name == "flops") return {flops_cost{}};
  return {unit_cost{}};
}

}  // namespace REMAT_NAMESPACE
