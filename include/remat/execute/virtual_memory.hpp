// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <memory_resource>
#include <new>

#if __has_include(<sys/mman.h>) && __has_include(<unistd.h>)
#include <sys/mman.h>
#include <unistd.h>
#define REMAT_HAVE_MMAP 1
#endif

namespace remat {

/// Memory that takes no room before it is written to: page by page, on POSIX systems; zero until then.
///
/// For arenas far larger than the machine's memory of which only some pages are touched (`stand_in_kernels`). Each
/// allocation is a mapping of its own, aligned to a page at least. Elsewhere: the memory of `operator new`.
/// Throws `std::bad_alloc`.
class virtual_memory final : public std::pmr::memory_resource {
 private:
#ifdef REMAT_HAVE_MMAP
  static std::size_t in_pages(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    if (bytes > static_cast<std::size_t>(-1) - page) throw std::bad_alloc();
    return bytes == 0 ? page : (bytes + page - 1) / page * page;
  }
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (alignment > static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) throw std::bad_alloc();
    const std::size_t size = in_pages(bytes);
    void* const p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_NOHUGEPAGE
    (void)madvise(p, size, MADV_NOHUGEPAGE);  // a huge page would take 2 MiB for one word
#endif
    return p;
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t) override { (void)munmap(p, in_pages(bytes)); }
#else
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* p, std::size_t bytes, std::size_t alignment) override {
    std::pmr::new_delete_resource()->deallocate(p, bytes, alignment);
  }
#endif
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return dynamic_cast<const virtual_memory*>(&other) != nullptr;
  }
};

}  // namespace remat

#undef REMAT_HAVE_MMAP
