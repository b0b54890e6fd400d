// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include "remat/core/detail/leaf.hpp"

namespace REMAT_NAMESPACE::detail {

/// The source of random numbers of every solver: xorshift64* \cite vigna2016xorshift, the same sequence on every
/// machine for a seed. Eight bytes of state; not for cryptography.
///
/// The seeds of random *kernels* are a contract of their own: see `kernel_seed` in `remat/execute/launch_plan.hpp`.
class random_source {
 public:
  /// Begins the sequence of a seed.
  explicit constexpr random_source(std::uint64_t seed) noexcept
      : state_(seed * 0x9e3779b97f4a7c15U + 0x1234567887654321U) {
    for (int i = 0; i < 8; ++i) (void)next();  // seeds that differ in one bit begin alike
  }

  /// 64 random bits; the upper ones are the better ones.
  constexpr std::uint64_t next() noexcept {
    state_ ^= state_ >> 12U;
    state_ ^= state_ << 25U;
    state_ ^= state_ >> 27U;
    return state_ * 0x2545f4914f6cdd1dU;
  }

  /// A number in 0 … n − 1. Precondition: 0 < n < 2^32.
  constexpr std::uint32_t below(std::uint64_t n) noexcept {
    return static_cast<std::uint32_t>(((next() >> 32U) * n) >> 32U);
  }

  /// A number in [0, 1).
  constexpr double uniform() noexcept { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace REMAT_NAMESPACE::detail
