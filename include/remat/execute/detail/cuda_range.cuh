// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <nvtx3/nvToolsExt.h>

namespace remat::detail {

namespace cuda {

/// An NVTX range while it lives.
class range {
 public:
  /// Begins the range `name`; null: there is no range.
  explicit range(const char* name) noexcept : on_(name != nullptr) {
    if (on_) static_cast<void>(nvtxRangePushA(name));
  }
  range(const range&) = delete;
  range& operator=(const range&) = delete;
  ~range() {
    if (on_) static_cast<void>(nvtxRangePop());
  }

 private:
  bool on_;
};

}  // namespace cuda

}  // namespace remat::detail
