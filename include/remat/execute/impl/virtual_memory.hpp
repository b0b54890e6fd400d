// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/execute/virtual_memory.hpp"

#include <new>

#include "remat/core/detail/linkage.hpp"

#if __has_include(<sys/mman.h>) && __has_include(<unistd.h>)

#include <sys/mman.h>
#include <unistd.h>

namespace remat {

namespace detail::virtual_memory {

[[nodiscard]] inline std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

/// The bytes of the pages that hold `bytes`, at least one page. Throws `std::bad_alloc` if they exceed the address
/// space.
[[nodiscard]] inline std::size_t round_to_pages(std::size_t bytes) {
  const std::size_t page = page_bytes();
  if (bytes > static_cast<std::size_t>(-1) - page) throw std::bad_alloc();
  return bytes == 0 ? page : (bytes + page - 1) / page * page;
}

}  // namespace detail::virtual_memory

REMAT_INLINE void* virtual_memory::do_allocate(std::size_t bytes, std::size_t alignment) {
  if (alignment > detail::virtual_memory::page_bytes()) throw std::bad_alloc();
  const std::size_t size = detail::virtual_memory::round_to_pages(bytes);
  void* const p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_NOHUGEPAGE
  (void)madvise(p, size, MADV_NOHUGEPAGE);  // a huge page would take 2 MiB for one word
#endif
  return p;
}

REMAT_INLINE void virtual_memory::do_deallocate(void* p, std::size_t bytes, std::size_t) {
  (void)munmap(p, detail::virtual_memory::round_to_pages(bytes));
}

}  // namespace remat

#else

namespace remat {

REMAT_INLINE void* virtual_memory::do_allocate(std::size_t bytes, std::size_t alignment) {
  return std::pmr::new_delete_resource()->allocate(bytes, alignment);
}

REMAT_INLINE void virtual_memory::do_deallocate(void* p, std::size_t bytes, std::size_t alignment) {
  std::pmr::new_delete_resource()->deallocate(p, bytes, alignment);
}

}  // namespace remat

#endif

namespace remat {

REMAT_INLINE bool virtual_memory::do_is_equal(const std::pmr::memory_resource& other) const noexcept {
  return dynamic_cast<const virtual_memory*>(&other) != nullptr;
}

}  // namespace remat
