// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

/// \file
/// Sets of vertices as bits, 64 to a word.

/// Calls f(v) for each bit v that is set in the words word(0) … word(words − 1), ascending.
template <class Word, class F>
void for_each_bit(std::size_t words, Word&& word, F&& f) {
  for (std::size_t w = 0; w < words; ++w)
    for (std::uint64_t bits = word(w); bits != 0; bits &= bits - 1)
      f(static_cast<std::uint32_t>(64 * w + static_cast<unsigned>(std::countr_zero(bits))));
}

/// The number of bits that are set.
[[nodiscard]] inline std::uint32_t count_bits(std::span<const std::uint64_t> words) noexcept {
  int count = 0;
  for (const std::uint64_t w : words) count += std::popcount(w);
  return static_cast<std::uint32_t>(count);
}

/// A matrix of bits; each row is a set of vertices.
class bit_matrix {
 public:
  bit_matrix(std::size_t rows, std::size_t columns) : words_((columns + 63) / 64), bits_(words_ * rows, 0) {}
  /// The number of words of a row.
  [[nodiscard]] std::size_t words() const noexcept { return words_; }
  [[nodiscard]] std::uint64_t* operator[](std::uint32_t u) noexcept { return bits_.data() + words_ * u; }
  [[nodiscard]] const std::uint64_t* operator[](std::uint32_t u) const noexcept { return bits_.data() + words_ * u; }

  [[nodiscard]] bool test(std::uint32_t u, std::uint32_t v) const noexcept {
    return ((*this)[u][v / 64] & bit(v)) != 0;
  }
  void set(std::uint32_t u, std::uint32_t v) noexcept { (*this)[u][v / 64] |= bit(v); }
  void reset(std::uint32_t u, std::uint32_t v) noexcept { (*this)[u][v / 64] &= ~bit(v); }
  /// The number of members of row u.
  [[nodiscard]] std::uint32_t count(std::uint32_t u) const noexcept { return count_bits({(*this)[u], words_}); }
  /// Adds the members of another set to row u.
  void add(std::uint32_t u, const std::uint64_t* set) noexcept {
    std::uint64_t* row = (*this)[u];
    for (std::size_t w = 0; w < words_; ++w) row[w] |= set[w];
  }
  /// Calls f(v) for each member v of row u, ascending.
  template <class F>
  void for_each(std::uint32_t u, F&& f) const {
    const std::uint64_t* row = (*this)[u];
    for_each_bit(
        words_, [&](std::size_t w) { return row[w]; }, f);
  }

 private:
  [[nodiscard]] static std::uint64_t bit(std::uint32_t v) noexcept { return std::uint64_t{1} << (v % 64); }

  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

/// A set of vertices below 64 W. Each member function is O(W).
template <std::size_t W>
struct vertex_set {
  std::array<std::uint64_t, W> words{};

  [[nodiscard]] bool contains(std::uint32_t v) const noexcept { return (words[v / 64] >> (v % 64) & 1U) != 0; }
  void insert(std::uint32_t v) noexcept { words[v / 64] |= std::uint64_t{1} << (v % 64); }
  void erase(std::uint32_t v) noexcept { words[v / 64] &= ~(std::uint64_t{1} << (v % 64)); }
  [[nodiscard]] std::uint32_t size() const noexcept { return count_bits(words); }
  [[nodiscard]] bool empty() const noexcept { return within({}); }
  /// The least vertex; 64 W for the empty set.
  [[nodiscard]] std::uint32_t least() const noexcept {
    for (std::size_t i = 0; i < W; ++i)
      if (words[i] != 0) return static_cast<std::uint32_t>(64 * i + static_cast<unsigned>(std::countr_zero(words[i])));
    return static_cast<std::uint32_t>(64 * W);
  }
  template <class F>
  void for_each(F&& f) const {
    for_each_bit(
        W, [&](std::size_t w) { return words[w]; }, f);
  }
  [[nodiscard]] bool meets(const vertex_set& o) const noexcept { return !(*this & o).empty(); }
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
  friend bool operator==(const vertex_set&, const vertex_set&) noexcept = default;
};

}  // namespace REMAT_NAMESPACE::detail
