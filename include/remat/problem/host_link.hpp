// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include "remat/version.hpp"

namespace REMAT_NAMESPACE {

/// The way between the device and its host, over which schedules copy tensors: a speed for each direction, and the time
/// that every copy takes besides.
///
/// Speeds are in bytes per unit of the cost model's time: per second for `roofline_cost` and `measured_cost`. The
/// defaults are those of a device on PCI Express 4.0, with times in seconds.
///
///     const problem p = problem(graph, roofline_cost{}).with_link({.out = 12e9, .in = 12e9});
struct host_link {
  double out = 25e9;      ///< speed of copies from the device to the host, positive
  double in = 25e9;       ///< speed of copies from the host to the device, positive
  double latency = 1e-5;  ///< time that each copy takes besides its bytes, not negative

  /// Returns the time of a copy of `bytes` to the host.
  [[nodiscard]] constexpr double time_out(std::int64_t bytes) const noexcept {
    return static_cast<double>(bytes) / out + latency;
  }
  /// Returns the time of a copy of `bytes` to the device.
  [[nodiscard]] constexpr double time_in(std::int64_t bytes) const noexcept {
    return static_cast<double>(bytes) / in + latency;
  }

  /// Compares all members.
  friend constexpr bool operator==(const host_link&, const host_link&) = default;
};

/// Throws `bad_argument`, which names the field, if a speed is not positive and finite, if it is so low that the copy
/// of 2^63 − 1 bytes takes no finite time, or if the latency is negative or not finite.
void require_valid(const host_link& link);

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/problem/impl/host_link.hpp"
#endif
