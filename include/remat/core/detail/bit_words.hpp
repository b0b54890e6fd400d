// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/detail/linkage.hpp"

/// Sets of small numbers as bits, 64 to a word.
namespace REMAT_NAMESPACE::detail {

/// The words of a set.
using bit_words = std::vector<std::uint64_t>;

[[nodiscard]] inline bool test_bit(std::span<const std::uint64_t> words, std::uint32_t i) noexcept {
  return (words[i / 64] >> (i % 64) & 1) != 0;
}
inline void set_bit(std::span<std::uint64_t> words, std::uint32_t i) noexcept {
  words[i / 64] |= std::uint64_t{1} << (i % 64);
}
inline void clear_bit(std::span<std::uint64_t> words, std::uint32_t i) noexcept {
  words[i / 64] &= ~(std::uint64_t{1} << (i % 64));
}
/// Adds the members of `more`, which may be empty and has no more words than `into`.
inline void unite(std::span<std::uint64_t> into, std::span<const std::uint64_t> more) noexcept {
  for (std::size_t w = 0; w < more.size(); ++w) into[w] |= more[w];
}

/// Calls f(i) for each bit i that is set in the words word(0) … word(words − 1), ascending.
template <class Word, class F>
void for_each_bit(std::size_t words, Word&& word, F&& f) {
  for (std::size_t w = 0; w < words; ++w)
    for (std::uint64_t bits = word(w); bits != 0; bits &= bits - 1)
      f(static_cast<std::uint32_t>(64 * w + static_cast<unsigned>(std::countr_zero(bits))));
}
template <class F>
void for_each_bit(std::span<const std::uint64_t> words, F&& f) {
  for_each_bit(
      words.size(), [&](std::size_t w) { return words[w]; }, f);
}

/// The number of bits that are set.
[[nodiscard]] inline std::uint32_t count_bits(std::span<const std::uint64_t> words) noexcept {
  int count = 0;
  for (const std::uint64_t w : words) count += std::popcount(w);
  return static_cast<std::uint32_t>(count);
}

/// A hash of some words.
[[nodiscard]] inline std::uint64_t hash_words(std::span<const std::uint64_t> words) noexcept {
  std::uint64_t h = 0x9e3779b97f4a7c15ULL;
  for (const std::uint64_t w : words) {
    h = (h ^ w) * 0xff51afd7ed558ccdULL;
    h ^= h >> 32U;
  }
  return h;
}

}  // namespace REMAT_NAMESPACE::detail
