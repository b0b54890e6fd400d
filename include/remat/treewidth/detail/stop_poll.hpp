// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <functional>

namespace remat::detail::polling {

/// Counts the elementary steps of a loop, and asks a stop function after every `stride` of them. Once the function has
/// answered true, it is not asked again.
///
/// The default stride is a fraction of a millisecond of simple steps. A null `stop` never stops.
class stop_poll {
 public:
  static constexpr std::uint64_t default_stride = 100'000;

  explicit stop_poll(const std::function<bool()>* stop, std::uint64_t stride = default_stride) noexcept
      : stop_(stop), stride_(stride) {}

  /// Counts `steps` more, and returns whether the loop has to stop.
  bool count(std::uint64_t steps) {
    steps_ += steps;
    if (steps_ < stride_ || stopped_) return stopped_;
    steps_ = 0;
    stopped_ = stop_ != nullptr && (*stop_)();
    return stopped_;
  }
  [[nodiscard]] bool stopped() const noexcept { return stopped_; }

 private:
  const std::function<bool()>* stop_;
  std::uint64_t stride_, steps_ = 0;
  bool stopped_ = false;
};

}  // namespace remat::detail::polling
