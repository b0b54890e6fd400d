// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <new>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

/// Calls `body()`. Returns false if memory ran out in it (`std::bad_alloc`); other exceptions leave the function.
template <class Body>
[[nodiscard]] bool within_memory(Body&& body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

}  // namespace REMAT_NAMESPACE::detail
