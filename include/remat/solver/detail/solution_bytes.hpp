// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/schedule/detail/schedule_bytes.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// Appends figures, with their types.
inline void fields_of(byte_writer& out, const figures& all) {
  out.put<std::uint64_t>(all.items().size());
  for (const auto& [name, value] : all.items()) {
    out(name, static_cast<std::uint8_t>(value.index()));
    std::visit([&](const auto& v) { out.put(v); }, value);
  }
}

/// Reads figures.
inline void fields_of(byte_reader& in, figures& all) {
  all = {};
  for (std::size_t left = in.length(1); left > 0; --left) {
    const auto name = in.get<std::string>();
    switch (in.get<std::uint8_t>()) {
      case 0:
        all.set(name, in.get<bool>());
        break;
      case 1:
        all.set(name, in.get<std::int64_t>());
        break;
      case 2:
        all.set(name, in.get<double>());
        break;
      case 3:
        all.set(name, std::string_view(in.get<std::string>()));
        break;
      default:
        all.set(name, in.get<figures::group_list>());
    }
  }
}

void fields_of(auto& bytes, maybe_const<solve_statistics> auto& s) {
  bytes(s.seconds, s.work, s.computes, s.recomputes, s.own);
}

void fields_of(auto& bytes, maybe_const<solution> auto& s) {
  bytes(s.status, s.plan, s.by, s.peak_bytes, s.host_peak_bytes, s.time, s.lower_bound, s.proven, s.obstacle,
        s.statistics, s.message, s.out_of_memory);
}

}  // namespace REMAT_NAMESPACE::detail
