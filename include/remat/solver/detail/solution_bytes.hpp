// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/schedule/detail/schedule_bytes.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// Appends figures, with their types.
inline void put(byte_writer& out, const figures& all) {
  out.put<std::uint64_t>(all.items().size());
  for (const auto& [name, value] : all.items()) {
    out.put(name);
    out.put(static_cast<std::uint8_t>(value.index()));
    std::visit(
        [&](const auto& v) {
          if constexpr (std::is_same_v<std::decay_t<decltype(v)>, figures::group_list>) {
            out.put<std::uint64_t>(v.size());
            for (const figures& group : v) put(out, group);
          } else {
            out.put(v);
          }
        },
        value);
  }
}

/// Reads the figures that `put` wrote.
[[nodiscard]] inline figures get_figures(byte_reader& in) {
  figures all;
  const std::size_t count = in.length(1);
  for (std::size_t i = 0; i < count; ++i) {
    std::string name, text;
    in.get(name);
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
        in.get(text);
        all.set(name, std::string_view(text));
        break;
      default: {
        figures::group_list groups(in.length(1));
        for (figures& group : groups) group = get_figures(in);
        all.set(name, std::move(groups));
      }
    }
  }
  return all;
}

/// Appends a solution.
inline void put(byte_writer& out, const solution& s) {
  out.put(s.status);
  put(out, s.plan);
  out.put(s.by);
  out.put(s.peak_bytes);
  out.put(s.host_peak_bytes);
  out.put(s.time);
  out.put(s.lower_bound);
  out.put(s.proven);
  out.put_optional(s.obstacle);
  out.put(s.statistics.seconds);
  out.put(s.statistics.work);
  out.put(s.statistics.computes);
  out.put(s.statistics.recomputes);
  put(out, s.statistics.own);
  out.put(s.message);
  out.put(s.out_of_memory);
}

/// Reads the solution that `put` wrote.
[[nodiscard]] inline solution get_solution(byte_reader& in) {
  solution s;
  in.get(s.status);
  s.plan = get_optional_schedule(in);
  in.get(s.by);
  in.get(s.peak_bytes);
  in.get(s.host_peak_bytes);
  in.get(s.time);
  in.get(s.lower_bound);
  in.get(s.proven);
  in.get_optional(s.obstacle);
  in.get(s.statistics.seconds);
  in.get(s.statistics.work);
  in.get(s.statistics.computes);
  in.get(s.statistics.recomputes);
  s.statistics.own = get_figures(in);
  in.get(s.message);
  in.get(s.out_of_memory);
  return s;
}

}  // namespace REMAT_NAMESPACE::detail
