// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/id.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE::detail {

/// Appends the codes of a schedule's steps.
inline void fields_of(byte_writer& out, const schedule& plan) {
  std::vector<std::uint32_t> codes;
  codes.reserve(plan.steps.size());
  for (const step& s : plan.steps) codes.push_back(s.code());
  out.put(codes);
}

/// Reads the codes of a schedule's steps.
inline void fields_of(byte_reader& in, schedule& plan) {
  plan.steps.clear();
  for (const std::uint32_t code : in.get<std::vector<std::uint32_t>>()) plan.steps.push_back(step::from_code(code));
}

}  // namespace REMAT_NAMESPACE::detail
