// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

/// The time between two looks for messages: short after a message, longer when nothing comes, so that ranks that wait
/// take little processor time.
class polling_interval {
 public:
  /// Returns the next interval.
  [[nodiscard]] std::chrono::microseconds next() noexcept {
    return std::exchange(interval_, std::min(2 * interval_, std::chrono::microseconds(1000)));
  }
  /// A message came.
  void reset() noexcept { interval_ = shortest; }

 private:
  static constexpr std::chrono::microseconds shortest{10};
  std::chrono::microseconds interval_ = shortest;
};

}  // namespace REMAT_NAMESPACE::detail
