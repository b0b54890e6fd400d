// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>

#include "remat/core/error.hpp"

namespace remat::detail {

/// Holds an executor for one call, from construction to destruction. A second call at the same time is refused, not
/// delayed: two training steps would write to one arena. Costs one atomic exchange.
class exclusive_use {
 public:
  /// Throws `bad_argument` if another call holds the executor.
  explicit exclusive_use(std::atomic<bool>& in_use) : in_use_(in_use) {
    if (in_use_.exchange(true, std::memory_order_acquire))
      throw bad_argument(
          "the executor is running a training step already; give each thread that runs steps an executor of its own");
  }
  exclusive_use(const exclusive_use&) = delete;
  exclusive_use& operator=(const exclusive_use&) = delete;
  ~exclusive_use() { in_use_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool>& in_use_;
};

}  // namespace remat::detail
