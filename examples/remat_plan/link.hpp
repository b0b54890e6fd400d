// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "budget.hpp"
#include "remat/core/error.hpp"
#include "remat/problem/problem.hpp"
#include "shared/trimmed.hpp"
#include "shared/usage_error.hpp"

namespace remat_plan::reading {

using shared::usage_error;

/// The items of a list that commas separate, without the spaces around them. Throws for an empty item.
[[nodiscard]] inline std::vector<std::string> split(const std::string& option, const std::string& list) {
  std::vector<std::string> items;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    items.emplace_back(shared::trimmed(std::string_view(list).substr(at, comma - at)));
    if (items.back().empty())
      throw usage_error(option + " " + list + ": item " + std::to_string(items.size()) +
                        " of the list is empty; expected items separated by single commas");
    at = comma + 1;
  }
  return items;
}

/// A part of `--link`.
struct link_part {
  using member = double remat::host_link::*;  // nvcc would put parentheses around a declaration without the name

  std::string_view name{};
  member value = nullptr;
  const char* expected = nullptr;
};
inline constexpr const char* expected_speed = "a speed above 0, in bytes per unit of time, such as 25e9";
inline constexpr std::array<link_part, 3> link_parts{
    {{"out", &remat::host_link::out, expected_speed},
     {"in", &remat::host_link::in, expected_speed},
     {"latency", &remat::host_link::latency, "a time from 0, such as 1e-5"}}};
inline constexpr const char* example_link = "--link out=25e9,in=25e9,latency=1e-5";

/// The link that `list` describes, NAME=NUMBER for each part; a part that is left out has its default.
[[nodiscard]] inline remat::host_link read_link(const std::string& option, const std::string& list) {
  if (list.empty()) throw usage_error(option + ": the speeds are missing; for instance " + example_link);
  remat::host_link link;
  std::vector<std::string_view> seen;
  for (const std::string& item : split(option, list)) {
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string_view name = std::string_view(item).substr(0, equals);
    const auto* const part =
        std::find_if(link_parts.begin(), link_parts.end(), [&](const link_part& p) { return p.name == name; });
    if (part == link_parts.end() || equals == item.size())
      throw usage_error(option + " " + item + ": expected out=SPEED, in=SPEED or latency=TIME");
    if (std::find(seen.begin(), seen.end(), part->name) != seen.end())
      throw usage_error(option + " " + list + ": " + std::string(part->name) + " is given twice; expected it once");
    seen.push_back(part->name);
    const char* const end = item.data() + item.size();
    const auto read = std::from_chars(item.data() + equals + 1, end, link.*part->value);
    bool is_valid = read.ec == std::errc{} && read.ptr == end;
    try {
      require_valid(link);
    } catch (const remat::bad_argument&) {
      is_valid = false;
    }
    if (!is_valid) throw usage_error(option + " " + item + ": expected " + part->expected);
  }
  return link;
}

/// The bytes of `--host-budget`.
[[nodiscard]] inline std::int64_t read_host_budget(const std::string& option, const std::string& text) {
  const parsed_budget budget = parse_bytes(text);
  if (!budget.wrong.empty()) throw usage_error(option + " " + text + ": " + budget.wrong);
  return budget.bytes;
}

/// Throws if a host budget is given without a link.
inline void require_link_for_host_budget(bool has_link, bool has_budget) {
  if (has_budget && !has_link)
    throw usage_error(std::string("--host-budget: it bounds copies to the host, which need a link; for instance ") +
                      example_link);
}

}  // namespace remat_plan::reading
