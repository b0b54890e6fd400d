// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "remat/core/detail/byte_code.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// Appends figures, with their groups.
inline void write(byte_writer& to, const figures& all) {
  to.number(std::uint64_t{all.items().size()});
  for (const auto& [name, value] : all.items()) {
    to.text(name);
    to.number(static_cast<std::uint8_t>(value.index()));
    std::visit(
        [&](const auto& x) {
          using type = std::remove_cvref_t<decltype(x)>;
          if constexpr (std::is_same_v<type, bool>) {
            to.number(static_cast<std::uint8_t>(x));
          } else if constexpr (std::is_same_v<type, std::string>) {
            to.text(x);
          } else if constexpr (std::is_same_v<type, figures::group_list>) {
            to.number(std::uint64_t{x.size()});
            for (const figures& group : x) write(to, group);
          } else {
            to.number(x);
          }
        },
        value);
  }
}

/// Reads figures as `write` wrote them.
[[nodiscard]] inline figures read_figures(byte_reader& from) {
  figures out;
  for (std::size_t left = from.count(10); left > 0; --left) {
    const std::string name = from.text();
    switch (from.number<std::uint8_t>()) {
      case 0:
        out.set(name, from.number<std::uint8_t>() != 0);
        break;
      case 1:
        out.set(name, from.number<std::int64_t>());
        break;
      case 2:
        out.set(name, from.number<double>());
        break;
      case 3:
        out.set(name, from.text());
        break;
      case 4: {
        figures::group_list groups(from.count(8));
        for (figures& group : groups) group = read_figures(from);
        out.set(name, std::move(groups));
        break;
      }
      default:
        throw bad_argument("bytes from another program: no figure has this type");
    }
  }
  return out;
}

/// Appends all members of a solution.
inline void write(byte_writer& to, const solution& s) {
  to.number(static_cast<std::uint8_t>(s.status));
  to.number(static_cast<std::uint8_t>(s.plan.has_value()));
  if (s.plan) {
    to.number(std::uint64_t{s.plan->steps.size()});
    for (const step x : s.plan->steps) to.number(x.code());
  }
  to.text(s.by);
  to.number(s.peak_bytes);
  to.number(s.host_peak_bytes);
  to.number(s.time);
  to.number(s.lower_bound);
  to.number(static_cast<std::uint8_t>(s.proven));
  to.number(static_cast<std::uint8_t>(s.obstacle.has_value()));
  if (s.obstacle) to.number(static_cast<std::uint32_t>(*s.obstacle));
  to.number(s.statistics.seconds);
  to.number(s.statistics.work);
  to.number(s.statistics.computes);
  to.number(s.statistics.recomputes);
  write(to, s.statistics.own);
  to.text(s.message);
  to.number(static_cast<std::uint8_t>(s.out_of_memory));
}

/// Reads a solution as `write` wrote it.
[[nodiscard]] inline solution read_solution(byte_reader& from) {
  const auto flag = [&] { return from.number<std::uint8_t>() != 0; };
  solution s;
  s.status = static_cast<solve_status>(from.number<std::uint8_t>());
  if (flag()) {
    std::size_t left = from.count(sizeof(std::uint32_t));
    s.plan.emplace().steps.reserve(left);
    for (; left > 0; --left) s.plan->steps.push_back(step::from_code(from.number<std::uint32_t>()));
  }
  s.by = from.text();
  s.peak_bytes = from.number<std::int64_t>();
  s.host_peak_bytes = from.number<std::int64_t>();
  s.time = from.number<double>();
  s.lower_bound = from.number<double>();
  s.proven = flag();
  if (flag()) s.obstacle = static_cast<op_id>(from.number<std::uint32_t>());
  s.statistics.seconds = from.number<double>();
  s.statistics.work = from.number<std::uint64_t>();
  s.statistics.computes = from.number<std::uint64_t>();
  s.statistics.recomputes = from.number<std::uint64_t>();
  s.statistics.own = read_figures(from);
  s.message = from.text();
  s.out_of_memory = flag();
  return s;
}

}  // namespace REMAT_NAMESPACE::detail
