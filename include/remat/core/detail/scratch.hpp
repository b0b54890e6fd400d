// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>

#include "remat/core/detail/leaf.hpp"

namespace REMAT_NAMESPACE::detail {

/// Memory for the vectors of one computation after the other. Blocks are rounded up to powers of two and used again
/// when they are given back. Memory comes from the caller's bytes, if there are any, and then from the heap in chunks,
/// which stay until the pool ends. `reset` begins the next computation; one that asks for the same blocks as one before
/// it gets them without the heap. Not thread-safe.
class scratch_pool {
 public:
  scratch_pool() = default;
  explicit scratch_pool(std::span<std::byte> memory) noexcept {
    const auto skip = static_cast<std::size_t>(-reinterpret_cast<std::uintptr_t>(memory.data()) % grain);
    if (memory.size() < skip + sizeof(chunk)) return;
    chunks_ = newest_ = ::new (memory.data() + skip) chunk{nullptr, memory.size() - skip, sizeof(chunk), false};
  }
  scratch_pool(const scratch_pool&) = delete;
  scratch_pool& operator=(const scratch_pool&) = delete;
  ~scratch_pool() {
    for (chunk* c = chunks_; c != nullptr;) {
      chunk* const next = c->next;
      if (c->is_owned) ::operator delete(static_cast<void*>(c));
      c = next;
    }
  }

  /// Takes all blocks back.
  void reset() noexcept {
    for (free_block*& list : free_) list = nullptr;
    for (chunk* c = chunks_; c != nullptr; c = c->next) c->used = sizeof(chunk);
    heap_bytes_ = 0;
  }
  /// The bytes that came from the heap since the last `reset`.
  [[nodiscard]] std::size_t heap_bytes() const noexcept { return heap_bytes_; }

  /// Returns at least `bytes`, aligned for every type up to 16 bytes. Throws what `operator new` throws.
  [[nodiscard]] void* allocate(std::size_t bytes) {
    const std::size_t k = class_of(bytes), size = std::size_t{1} << k;
    if (free_block* const block = free_[k]; block != nullptr) {
      free_[k] = block->next;
      return block;
    }
    chunk* c = chunks_;
    while (c != nullptr && c->size - c->used < size) c = c->next;
    if (c == nullptr) c = grow(size);
    void* const out = reinterpret_cast<std::byte*>(c) + c->used;
    c->used += size;
    return out;
  }
  void deallocate(void* p, std::size_t bytes) noexcept {
    const std::size_t k = class_of(bytes);
    free_[k] = ::new (p) free_block{free_[k]};
  }

 private:
  static constexpr std::size_t grain = 16, least_block = 32, first_chunk = std::size_t{1} << 16;
  struct free_block {
    free_block* next;
  };
  struct alignas(grain) chunk {
    chunk* next;
    std::size_t size, used;
    bool is_owned;
  };

  [[nodiscard]] static std::size_t class_of(std::size_t bytes) noexcept {
    return static_cast<std::size_t>(std::bit_width((bytes < least_block ? least_block : bytes) - 1));
  }
  chunk* grow(std::size_t least) {
    std::size_t size = newest_ == nullptr ? first_chunk : newest_->size * 2;
    while (size < least + sizeof(chunk)) size *= 2;
    chunk* const c = ::new (::operator new(size)) chunk{nullptr, size, sizeof(chunk), true};
    (newest_ == nullptr ? chunks_ : newest_->next) = c;
    newest_ = c;
    heap_bytes_ += size;
    return c;
  }

  chunk *chunks_ = nullptr, *newest_ = nullptr;  // the caller's first, then those from the heap, each twice the last
  free_block* free_[64]{};                       // k → blocks of 2^k bytes that were given back
  std::size_t heap_bytes_ = 0;
};

/// The allocator of vectors in a `scratch_pool`, which must outlive them.
template <class T>
class scratch_allocator {
 public:
  using value_type = T;
  explicit scratch_allocator(scratch_pool& pool) noexcept : pool_(&pool) {}
  template <class U>
  scratch_allocator(const scratch_allocator<U>& other) noexcept : pool_(&other.pool()) {}  // NOLINT: as allocators do
  [[nodiscard]] T* allocate(std::size_t n) { return static_cast<T*>(pool_->allocate(n * sizeof(T))); }
  void deallocate(T* p, std::size_t n) noexcept { pool_->deallocate(p, n * sizeof(T)); }
  [[nodiscard]] scratch_pool& pool() const noexcept { return *pool_; }
  friend bool operator==(const scratch_allocator& a, const scratch_allocator& b) noexcept { return a.pool_ == b.pool_; }

 private:
  scratch_pool* pool_;
};

}  // namespace REMAT_NAMESPACE::detail
