// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/splitmix64.hpp"

namespace REMAT_NAMESPACE::detail {

/// 128 bits computed from some bytes, the same on every machine: two chains of permutations over words of eight bytes,
/// the last one filled with zeros; the length comes first. Not for cryptography.
[[nodiscard]] inline std::array<std::uint64_t, 2> byte_hash(std::span<const std::byte> bytes) noexcept {
  std::array<std::uint64_t, 2> out{splitmix64(bytes.size()), splitmix64(~std::uint64_t{bytes.size()})};
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    const std::size_t end = std::min<std::size_t>(8, bytes.size() - at);
    for (std::size_t i = 0; i < end; ++i) word |= std::to_integer<std::uint64_t>(bytes[at + i]) << (8 * i);
    out[0] = splitmix64(out[0] ^ word);
    out[1] = splitmix64((out[1] ^ word) * 0xff51afd7ed558ccdU);
  }
  return out;
}

}  // namespace REMAT_NAMESPACE::detail
