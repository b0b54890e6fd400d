// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

inline constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;

/// A permutation of 64 bits, the last part of splitmix64 \cite steele2014splittable.
constexpr std::uint64_t mix_bits(std::uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/// The number that splitmix64 draws in state `z`.
constexpr std::uint64_t splitmix64(std::uint64_t z) noexcept { return mix_bits(z + golden); }

}  // namespace REMAT_NAMESPACE::detail
