// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/problem/host_link.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE void require_valid(const host_link& link) {
  const auto refuse = [](std::string_view field, double value, std::string_view expected) {
    std::array<char, 32> digits{};
    char* const end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    throw bad_argument("link: " + std::string(field) + " is " + std::string(digits.data(), end) + "; it must be " +
                       std::string(expected));
  };
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  constexpr std::string_view speed = "a positive finite speed, in bytes per unit of time";
  if (!(link.latency >= 0) || !std::isfinite(link.latency))
    refuse("latency", link.latency, "a finite time, not negative");
  if (!(link.out > 0) || !std::isfinite(link.out) || !std::isfinite(link.time_out(largest)))
    refuse("out", link.out, speed);
  if (!(link.in > 0) || !std::isfinite(link.in) || !std::isfinite(link.time_in(largest))) refuse("in", link.in, speed);
}

}  // namespace REMAT_NAMESPACE
