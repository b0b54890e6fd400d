// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <memory_resource>

namespace remat {

/// Memory that takes no room before it is written to: page by page, on POSIX systems; it is zero until then.
///
/// For arenas far larger than the machine's memory of which only some pages are touched (`stand_in_kernels`). Each
/// allocation is a mapping of its own, aligned to a page at least. On other systems: the memory of `operator new`.
/// Throws `std::bad_alloc`.
class virtual_memory final : public std::pmr::memory_resource {
 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override;
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override;
};

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/execute/impl/virtual_memory.hpp"
#endif
