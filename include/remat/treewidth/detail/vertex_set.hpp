// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/core/detail/bit_words.hpp"

namespace REMAT_NAMESPACE::detail {

/// \file
/// Sets of vertices as bits, 64 to a word.

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
    for_each_bit({(*this)[u], words_}, f);
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

  [[nodiscard]] bool contains(std::uint32_t v) const noexcept { return test_bit(words, v); }
  void insert(std::uint32_t v) noexcept { set_bit(words, v); }
  void erase(std::uint32_t v) noexcept { clear_bit(words, v); }
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
    for_each_bit(words, f);
  }
  [[nodiscard]] bool meets(const vertex_set& o) const noexcept { return !(*this & o).empty(); }
  [[nodiscard]] bool within(const vertex_set& o) const noexcept {
    std::uint64_t any = 0;
    for (std::size_t i = 0; i < W; ++i) any |= words[i] & ~o.words[i];
    return any == 0;
  }
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_words(words); }
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
