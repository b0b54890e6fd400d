// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE::detail {

/// Writes values as bytes that are the same on every machine: numbers with the lowest byte first, a `double` by its
/// bits, a text after its length. `byte_reader` reads them in the same order.
class byte_writer {
 public:
  /// Appends a number.
  template <std::unsigned_integral T>
  void number(T value) {
    for (std::size_t i = 0; i < sizeof value; ++i)
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
  /// Appends a number.
  void number(std::int64_t value) { number(static_cast<std::uint64_t>(value)); }
  /// Appends a number.
  void number(double value) { number(std::bit_cast<std::uint64_t>(value)); }
  /// Appends a text.
  void text(std::string_view value) {
    number(std::uint64_t{value.size()});
    for (const char c : value) bytes_.push_back(static_cast<std::byte>(c));
  }

  /// Returns what was written.
  [[nodiscard]] std::vector<std::byte>& bytes() noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads what a `byte_writer` wrote. Throws `bad_argument` if the bytes end too early.
class byte_reader {
 public:
  /// Reads `bytes`, which must outlive the reader.
  explicit byte_reader(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

  /// Reads a number.
  template <class T>
  requires std::unsigned_integral<T> || std::same_as<T, std::int64_t> || std::same_as<T, double>
  [[nodiscard]] T number() {
    if constexpr (std::same_as<T, double>) {
      return std::bit_cast<double>(number<std::uint64_t>());
    } else {
      std::uint64_t value = 0;
      const std::span<const std::byte> from = take(sizeof(T));
      for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::to_integer<std::uint64_t>(from[i]) << (8 * i);
      return static_cast<T>(value);
    }
  }
  /// Reads a text.
  [[nodiscard]] std::string text() {
    const std::span<const std::byte> from = take(number<std::uint64_t>());
    std::string out;
    out.reserve(from.size());
    for (const std::byte b : from) out.push_back(static_cast<char>(b));
    return out;
  }
  /// Reads how many elements follow, each of at least `least` bytes: no more than can be there.
  [[nodiscard]] std::size_t count(std::size_t least) {
    const auto value = number<std::uint64_t>();
    if (value > bytes_.size() / least) refuse();
    return static_cast<std::size_t>(value);
  }
  /// Returns true if all has been read.
  [[nodiscard]] bool at_end() const noexcept { return bytes_.empty(); }

 private:
  [[noreturn]] static void refuse() { throw bad_argument("bytes from another program: they end too early"); }
  std::span<const std::byte> take(std::uint64_t size) {
    if (size > bytes_.size()) refuse();
    const std::span<const std::byte> out = bytes_.first(static_cast<std::size_t>(size));
    bytes_ = bytes_.subspan(static_cast<std::size_t>(size));
    return out;
  }

  std::span<const std::byte> bytes_;
};

}  // namespace REMAT_NAMESPACE::detail
