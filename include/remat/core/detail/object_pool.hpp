// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

/// Objects that are expensive to make, for pieces on several threads: a piece takes one, and gives it back. So there
/// are no more of them than pieces that run at the same time. Thread-safe.
template <class T>
class object_pool {
 public:
  /// Returns an object that was given back, the latest one, or if there is none what `make` returns.
  template <class Make>
  [[nodiscard]] std::unique_ptr<T> take(Make&& make) {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<T> object = std::move(idle_.back());
        idle_.pop_back();
        return object;
      }
    }
    return make();
  }
  /// Gives an object back.
  void give(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(object));
  }

 private:
  std::mutex mutex_;  // one mutex for what follows
  std::vector<std::unique_ptr<T>> idle_;
};

}  // namespace REMAT_NAMESPACE::detail
