// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

/// \file
/// Replaces the allocation functions of a whole test program: so one source of a program alone may include it. They
/// count, and fail where a window of `failing_allocation` says so; for all threads, and for what the standard library
/// allocates. Exceptions, threads' stacks and C code do not allocate through them.

namespace remat::test {

/// What the allocation functions of this program do.
struct allocation_state {
  static inline std::atomic<bool> open{false};       // a window is open
  static inline std::atomic<std::uint64_t> made{0};  // allocations in the window
  static inline std::atomic<std::uint64_t> failed{0};
  static inline std::atomic<std::uint64_t> first{0}, last{0};  // those of the window that fail
  static inline std::atomic<std::int64_t> live{0};             // allocations that have not been freed

  static bool fails() noexcept {
    if (!open.load(std::memory_order_relaxed)) return false;
    const std::uint64_t n = made.fetch_add(1, std::memory_order_relaxed);
    if (n < first.load(std::memory_order_relaxed) || n > last.load(std::memory_order_relaxed)) return false;
    failed.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  static void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
    if (fails()) return nullptr;
    if (bytes == 0) bytes = 1;
    void* const p = alignment <= alignof(std::max_align_t)
                        ? std::malloc(bytes)
                        : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (p != nullptr) live.fetch_add(1, std::memory_order_relaxed);
    return p;
  }
  static void free(void* p) noexcept {
    if (p == nullptr) return;
    live.fetch_sub(1, std::memory_order_relaxed);
    std::free(p);
  }
};

/// A window, from construction to destruction, in which allocations are counted and those numbered `first` … `last`
/// (from 0) fail. One at a time. doctest allocates for its messages: no check belongs into a window.
class failing_allocation {
 public:
  static constexpr std::uint64_t never = ~std::uint64_t{0};

  explicit failing_allocation(std::uint64_t first = never, std::uint64_t last = never) noexcept {
    allocation_state::first = first;
    allocation_state::last = last;
    allocation_state::made = 0;
    allocation_state::failed = 0;
    allocation_state::open = true;
  }
  failing_allocation(const failing_allocation&) = delete;
  failing_allocation& operator=(const failing_allocation&) = delete;
  ~failing_allocation() { close(); }

  /// Ends the window; allocations succeed again.
  void close() noexcept { allocation_state::open = false; }
  /// Allocations in the window so far, those that failed among them.
  [[nodiscard]] std::uint64_t made() const noexcept { return allocation_state::made; }
  /// Allocations that failed.
  [[nodiscard]] std::uint64_t failed() const noexcept { return allocation_state::failed; }
};

/// Allocations of this program that have not been freed.
[[nodiscard]] inline std::int64_t live_allocations() noexcept { return allocation_state::live; }

/// As `operator new`.
[[nodiscard]] inline void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  void* const p = allocation_state::allocate(bytes, alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

}  // namespace remat::test

void* operator new(std::size_t n) { return remat::test::allocate_or_throw(n, 1); }
void* operator new[](std::size_t n) { return remat::test::allocate_or_throw(n, 1); }
void* operator new(std::size_t n, std::align_val_t a) {
  return remat::test::allocate_or_throw(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, std::align_val_t a) {
  return remat::test::allocate_or_throw(n, static_cast<std::size_t>(a));
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  return remat::test::allocation_state::allocate(n, 1);
}
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept {
  return remat::test::allocation_state::allocate(n, 1);
}
void* operator new(std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return remat::test::allocation_state::allocate(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return remat::test::allocation_state::allocate(n, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { remat::test::allocation_state::free(p); }
void operator delete[](void* p) noexcept { remat::test::allocation_state::free(p); }
void operator delete(void* p, std::size_t) noexcept { remat::test::allocation_state::free(p); }
void operator delete[](void* p, std::size_t) noexcept { remat::test::allocation_state::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { remat::test::allocation_state::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { remat::test::allocation_state::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { remat::test::allocation_state::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { remat::test::allocation_state::free(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { remat::test::allocation_state::free(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { remat::test::allocation_state::free(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  remat::test::allocation_state::free(p);
}
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept {
  remat::test::allocation_state::free(p);
}
