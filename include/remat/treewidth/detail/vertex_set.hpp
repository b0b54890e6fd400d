// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace remat::detail::positive_instances {

/// A set of vertices below 64 W, as bits. Each member function is O(W).
template <std::size_t W>
struct vertex_set {
  std::array<std::uint64_t, W> words{};

  [[nodiscard]] bool contains(std::uint32_t v) const noexcept { return (words[v / 64] >> (v % 64) & 1U) != 0; }
  void insert(std::uint32_t v) noexcept { words[v / 64] |= std::uint64_t{1} << (v % 64); }
  void erase(std::uint32_t v) noexcept { words[v / 64] &= ~(std::uint64_t{1} << (v % 64)); }
  [[nodiscard]] std::uint32_t size() const noexcept {
    int count = 0;
    for (const std::uint64_t w : words) count += std::popcount(w);
    return static_cast<std::uint32_t>(count);
  }
  [[nodiscard]] bool empty() const noexcept {
    std::uint64_t any = 0;
    for (const std::uint64_t w : words) any |= w;
    return any == 0;
  }
  /// The least vertex; 64 W for the empty set.
  [[nodiscard]] std::uint32_t least() const noexcept {
    for (std::size_t i = 0; i < W; ++i)
      if (words[i] != 0) return static_cast<std::uint32_t>(64 * i + static_cast<unsigned>(std::countr_zero(words[i])));
    return static_cast<std::uint32_t>(64 * W);
  }
  template <class F>
  void for_each(F&& f) const {
    for (std::size_t i = 0; i < W; ++i)
      for (std::uint64_t bits = words[i]; bits != 0; bits &= bits - 1)
        f(static_cast<std::uint32_t>(64 * i + static_cast<unsigned>(std::countr_zero(bits))));
  }
  [[nodiscard]] bool meets(const vertex_set& o) const noexcept {
    std::uint64_t any = 0;
    for (std::size_t i = 0; i < W; ++i) any |= words[i] & o.words[i];
    return any != 0;
  }
  [[nodiscard]] bool within(const vertex_set& o) const noexcept {
    std::uint64_t any = 0;
    for (std::size_t i = 0; i < W; ++i) any |= words[i] & ~o.words[i];
    return any == 0;
  }
  [[nodiscard]] std::uint64_t hash() const noexcept {
    std::uint64_t h = 0x9e3779b97f4a7c15ULL;
    for (const std::uint64_t w : words) {
      h = (h ^ w) * 0xff51afd7ed558ccdULL;
      h ^= h >> 32U;
    }
    return h;
  }
  vertex_set& operator|=(const vertex_set& o) noexcept {
    for (std::size_t i = 0; i < W; ++i) words[i] |= o.words[i];
    return *this;
  }
  vertex_set& operator&=(const vertex_set& o) noexcept {
    for (std::size_t i = 0; i < W; ++i) words[i] &= o.words[i];
    return *this;
  }
  vertex_set& operator-=(const vertex_set& o) noexcept {
    for (std::size_t i = 0; i < W; ++i) words[i] &= ~o.words[i];
    return *this;
  }
  friend vertex_set operator|(vertex_set a, const vertex_set& b) noexcept { return a |= b; }
  friend vertex_set operator&(vertex_set a, const vertex_set& b) noexcept { return a &= b; }
  friend vertex_set operator-(vertex_set a, const vertex_set& b) noexcept { return a -= b; }
  friend bool operator==(const vertex_set& a, const vertex_set& b) noexcept { return a.words == b.words; }
};

}  // namespace remat::detail::positive_instances
