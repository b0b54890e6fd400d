// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

/// A function that says whether a search has to stop. Null never stops it.
using stop_function = const std::function<bool()>*;

/// Asks a stop function.
[[nodiscard]] inline bool must_stop(stop_function stop) { return stop != nullptr && (*stop)(); }

/// Counts the elementary steps of a loop, and asks a stop function after every `stride` of them. Once the function has
/// answered true, it is not asked again. The default stride is a fraction of a millisecond of simple steps.
class stop_poll {
 public:
  explicit stop_poll(stop_function stop, std::uint64_t stride = 100'000) noexcept : stop_(stop), stride_(stride) {}

  /// Counts `steps` more, and returns whether the loop has to stop.
  bool count(std::uint64_t steps) {
    steps_ += steps;
    if (steps_ < stride_ || stopped_) return stopped_;
    steps_ = 0;
    return stopped_ = must_stop(stop_);
  }
  [[nodiscard]] bool stopped() const noexcept { return stopped_; }

 private:
  stop_function stop_;
  std::uint64_t stride_, steps_ = 0;
  bool stopped_ = false;
};

}  // namespace REMAT_NAMESPACE::detail
