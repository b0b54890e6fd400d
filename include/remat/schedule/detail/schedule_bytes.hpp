// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/id.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE::detail {

/// Appends the codes of a schedule's steps.
inline void put(byte_writer& out, const schedule& plan) {
  std::vector<std::uint32_t> codes;
  codes.reserve(plan.steps.size());
  for (const step& s : plan.steps) codes.push_back(s.code());
  out.put(codes);
}
/// \overload
inline void put(byte_writer& out, const std::optional<schedule>& plan) {
  out.put(plan.has_value());
  if (plan) put(out, *plan);
}

/// Reads the schedule that `put` wrote.
[[nodiscard]] inline schedule get_schedule(byte_reader& in) {
  std::vector<std::uint32_t> codes;
  in.get(codes);
  schedule plan;
  plan.steps.reserve(codes.size());
  for (const std::uint32_t code : codes) plan.steps.push_back(step::from_code(code));
  return plan;
}
/// \overload
[[nodiscard]] inline std::optional<schedule> get_optional_schedule(byte_reader& in) {
  if (!in.get<bool>()) return std::nullopt;
  return get_schedule(in);
}

}  // namespace REMAT_NAMESPACE::detail
