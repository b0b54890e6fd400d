// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
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

/// `T` or `const T`.
template <class X, class T>
concept maybe_const = std::same_as<std::remove_const_t<X>, T>;

/// A type whose fields are listed once, for writing and for reading: a function beside it calls `bytes` with all of
/// them, in one order.
///
///     void fields_of(auto& bytes, maybe_const<host_link> auto& x) { bytes(x.out, x.in, x.latency); }
template <class T, class Bytes>
concept lists_fields = requires(Bytes& bytes, T& x) {
  fields_of(bytes, x);
};

/// Appends values to a row of bytes, which is the same on every machine: a number begins with its lowest byte.
class byte_writer {
 public:
  /// Appends several values.
  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
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
  /// Appends a row of values with its length.
  template <class T>
  void put(const std::vector<T>& row) {
    if constexpr (plain_bytes<T>) {
      put(std::span<const T>(row));
    } else {
      put<std::uint64_t>(row.size());
      for (const T& value : row) put(value);
    }
  }
  /// Appends a value that may be missing.
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  /// Appends two values.
  template <class A, class B>
  void put(const std::pair<A, B>& both) {
    (*this)(both.first, both.second);
  }
  /// Appends the fields of a value.
  template <class T>
  requires lists_fields<const T, byte_writer>
  void put(const T& value) { fields_of(*this, value); }

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

  /// Reads several values.
  template <class... T>
  void operator()(T&... into) {
    (get(into), ...);
  }
  /// Reads a value of the type `T`.
  template <class T>
  [[nodiscard]] T get() {
    T value{};
    get(value);
    return value;
  }
  /// Reads a value that has the type of `into`.
  template <plain_bytes T>
  void get(T& into) {
    std::memcpy(&into, take(sizeof into).data(), sizeof into);
    into = lowest_byte_first(into);
  }
  void get(std::string& into) {
    const std::span<const std::byte> text = take(length(1));
    into.assign(reinterpret_cast<const char*>(text.data()), text.size());
  }
  template <class T>
  void get(std::vector<T>& into) {
    if constexpr (plain_bytes<T>) {
      const std::size_t count = length(sizeof(T));
      const std::span<const std::byte> row = take(count * sizeof(T));
      into.resize(count);
      if (count != 0) std::memcpy(into.data(), row.data(), row.size());
      if constexpr (std::endian::native == std::endian::big)
        for (T& value : into) value = lowest_byte_first(value);
    } else {
      into.resize(length(1));
      for (T& value : into) get(value);
    }
  }
  template <class T>
  void get(std::optional<T>& into) {
    into.reset();
    if (get<bool>()) get(into.emplace());
  }
  template <class A, class B>
  void get(std::pair<A, B>& both) {
    (*this)(both.first, both.second);
  }
  template <class T>
  requires lists_fields<T, byte_reader>
  void get(T& into) { fields_of(*this, into); }
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

void fields_of(auto& bytes, maybe_const<index_rows> auto& rows) { bytes(rows.begin, rows.values); }

/// The values as a row of bytes.
template <class... T>
[[nodiscard]] std::vector<std::byte> bytes_of(const T&... values) {
  byte_writer out;
  out(values...);
  return out.take();
}

/// The value that `bytes_of` wrote alone.
template <class T>
[[nodiscard]] T from_bytes(std::span<const std::byte> bytes) {
  return byte_reader(bytes).get<T>();
}

}  // namespace REMAT_NAMESPACE::detail
