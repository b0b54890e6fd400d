// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

inline constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;

/// The number that splitmix64 \cite steele2014splittable draws in state `z`.
constexpr std::uint64_t splitmix64(std::uint64_t z) noexcept {
  z += golden;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace REMAT_NAMESPACE::detail
