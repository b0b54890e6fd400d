// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"

namespace REMAT_NAMESPACE::detail {

/// A type that is copied byte by byte.
template <class T>
concept plain_bytes = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::byte>;

/// Returns `value` with its lowest byte first in memory; from there, the other way round.
template <plain_bytes T>
[[nodiscard]] T lowest_byte_first(T value) noexcept {
  if constexpr (std::endian::native == std::endian::big) {
    std::array<std::byte, sizeof value> raw;
    std::memcpy(raw.data(), &value, sizeof value);
    std::reverse(raw.begin(), raw.end());
    std::memcpy(&value, raw.data(), sizeof value);
  }
  return value;
}

/// Appends values to a row of bytes, which is the same on every machine: a number begins with its lowest byte.
class byte_writer {
 public:
  /// Appends a number or an enumerator.
  template <plain_bytes T>
  void put(T value) {
    value = lowest_byte_first(value);
    append(&value, sizeof value);
  }
  /// Appends a text with its length.
  void put(std::string_view text) {
    put<std::uint64_t>(text.size());
    append(text.data(), text.size());
  }
  /// \overload
  void put(const std::string& text) { put(std::string_view(text)); }
  /// Appends a row of numbers with its length.
  template <plain_bytes T>
  void put(std::span<const T> row) {
    put<std::uint64_t>(row.size());
    if constexpr (std::endian::native == std::endian::big)
      for (const T value : row) put(value);
    else
      append(row.data(), row.size_bytes());
  }
  /// \overload
  template <plain_bytes T>
  void put(const std::vector<T>& row) {
    put(std::span<const T>(row));
  }
  /// \overload
  void put(const index_rows& rows) {
    put(rows.begin);
    put(rows.values);
  }
  /// Appends a value that may be missing.
  template <plain_bytes T>
  void put_optional(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }

  /// Returns the bytes, and leaves none.
  [[nodiscard]] std::vector<std::byte> take() { return std::exchange(bytes_, {}); }

 private:
  void append(const void* from, std::size_t size) {
    const auto* const begin = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }

  std::vector<std::byte> bytes_{};
};

/// Reads what a `byte_writer` wrote, in the same order. Throws `bad_argument` if the bytes end before.
class byte_reader {
 public:
  /// Keeps a reference to the bytes.
  explicit byte_reader(std::span<const std::byte> bytes) : left_(bytes) {}

  /// Reads a number or an enumerator.
  template <plain_bytes T>
  [[nodiscard]] T get() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return lowest_byte_first(value);
  }
  /// Reads a value that has the type of `into`.
  template <plain_bytes T>
  void get(T& into) {
    into = get<T>();
  }
  /// \overload
  void get(std::string& into) {
    const std::span<const std::byte> text = take(length(1));
    into.assign(reinterpret_cast<const char*>(text.data()), text.size());
  }
  /// \overload
  template <plain_bytes T>
  void get(std::vector<T>& into) {
    const std::size_t count = length(sizeof(T));
    const std::span<const std::byte> row = take(count * sizeof(T));
    into.resize(count);
    if (count != 0) std::memcpy(into.data(), row.data(), row.size());
    if constexpr (std::endian::native == std::endian::big)
      for (T& value : into) value = lowest_byte_first(value);
  }
  /// \overload
  void get(index_rows& into) {
    get(into.begin);
    get(into.values);
  }
  /// Reads a value that may be missing.
  template <plain_bytes T>
  void get_optional(std::optional<T>& into) {
    into.reset();
    if (get<bool>()) into = get<T>();
  }
  /// Returns the bytes that have not been read.
  [[nodiscard]] std::span<const std::byte> rest() const noexcept { return left_; }
  /// Reads the number of elements that follow, each of at least `size` bytes.
  [[nodiscard]] std::size_t length(std::size_t size) {
    const auto count = get<std::uint64_t>();
    if (count > left_.size() / size) end_early();
    return static_cast<std::size_t>(count);
  }

 private:
  [[nodiscard]] std::span<const std::byte> take(std::size_t size) {
    if (size > left_.size()) end_early();
    const std::span<const std::byte> out = left_.first(size);
    left_ = left_.subspan(size);
    return out;
  }
  [[noreturn]] static void end_early() { throw bad_argument("encoded bytes end early: are all ranks of one program?"); }

  std::span<const std::byte> left_;
};

}  // namespace REMAT_NAMESPACE::detail
