// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/execute/host.hpp"

#include <algorithm>
#include <string>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace remat::detail::host {

REMAT_INLINE arena_memory::arena_memory(std::pmr::memory_resource* resource, std::span<std::byte> given,
                                        std::int64_t bytes, std::int64_t alignment)
    : range_(given) {
  if (given.data() != nullptr || bytes == 0) return;
  const auto size = static_cast<std::size_t>(bytes), align = static_cast<std::size_t>(alignment);
  try {
    range_ = {static_cast<std::byte*>(resource->allocate(size, align)), size};
  } catch (const std::exception& e) {
    std::throw_with_nested(bad_argument("the memory resource does not give the arena, " + std::to_string(size) +
                                        " bytes aligned to " + std::to_string(align) + ": " + e.what()));
  }
  resource_ = resource;
  alignment_ = align;
}

REMAT_INLINE arena_memory::~arena_memory() {
  if (resource_ != nullptr) resource_->deallocate(range_.data(), range_.size(), alignment_);
}

REMAT_INLINE void rethrow_earliest(std::span<std::exception_ptr> errors) {
  std::size_t first = 0, least = static_cast<std::size_t>(-1);
  for (std::size_t s = 0; s < errors.size(); ++s) {
    if (!errors[s]) continue;
    try {
      std::rethrow_exception(errors[s]);
    } catch (const execution_error& e) {
      if (e.step() < least) {
        least = e.step();
        first = s;
      }
    } catch (...) {
      first = s;
      break;
    }
  }
  const std::exception_ptr chosen = errors[first];
  std::fill(errors.begin(), errors.end(), std::exception_ptr());
  std::rethrow_exception(chosen);
}

}  // namespace remat::detail::host
