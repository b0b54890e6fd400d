// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <new>

#include "remat/core/detail/leaf.hpp"

namespace REMAT_NAMESPACE::detail {

/// Calls `body()`. Returns false if memory ran out in it (`std::bad_alloc`); other exceptions leave the function. A
/// leaf may be compiled without exceptions: then `operator new` ends the program itself.
template <class Body>
[[nodiscard]] bool within_memory(Body&& body) {
#if defined(__cpp_exceptions)
  try {
    body();
  } catch (const std::bad_alloc&) {
    return false;
  }
#else
  body();
#endif
  return true;
}

}  // namespace REMAT_NAMESPACE::detail
