// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "remat/core/detail/platform.hpp"
#include "remat/core/id.hpp"

namespace REMAT_NAMESPACE {

/// Base of every exception that the library throws for invalid input or misuse.
///
/// The outcome of a solve (infeasible, timeout, …) is never an exception: see `solution`.
class error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A graph that does not model a training step: a cycle, a missing producer, an id out of range.
class bad_graph : public error {
 public:
  using error::error;
};

/// A time or a size of a cost model that is negative, NaN, infinite, missing, or too large.
class bad_cost : public error {
 public:
  using error::error;
};

/// An option or an argument outside of its range.
class bad_argument : public error {
 public:
  using error::error;
};

/// A file that breaks its format.
///
/// `what()` is one line: the file, the place in the file (a JSON pointer such as `/tensors/3/bytes`, or line and
/// column), the error, and a correct value.
class bad_file : public error {
 public:
  /// Makes the line of `what()` from the file, the place in the file (may be empty) and the error.
  bad_file(std::string file, std::string where, const std::string& message)
      : error(file + (where.empty() ? "" : ": " + where) + ": " + message),
        file_(std::move(file)),
        where_(std::move(where)) {}
  /// Returns the path of the file.
  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  /// Returns the place in the file: a JSON pointer, or line and column. May be empty.
  [[nodiscard]] const std::string& where() const noexcept { return where_; }

 private:
  std::string file_, where_;
};

/// A kernel, a copy to or from the host, or their device failed. The message names the operation or the tensor, and the
/// reason. If the kernel or the copy threw an exception, it is nested (`std::rethrow_if_nested`).
class execution_error : public error {
 public:
  /// `operation` has failed, at position `step` of the schedule.
  execution_error(op_id operation, std::size_t step, const std::string& message)
      : error(message), operation_(operation), step_(step) {}
  /// The copy of `tensor` has failed, at position `step` of the schedule.
  execution_error(tensor_id tensor, std::size_t step, const std::string& message)
      : error(message), tensor_(tensor), step_(step) {}
  /// Returns the operation that failed. Precondition: `tensor()` is empty.
  [[nodiscard]] op_id operation() const noexcept { return operation_; }
  /// Returns the tensor whose copy failed; empty if an operation failed.
  [[nodiscard]] std::optional<tensor_id> tensor() const noexcept { return tensor_; }
  /// Returns the position of the failed step in the schedule.
  [[nodiscard]] std::size_t step() const noexcept { return step_; }

 private:
  op_id operation_{};
  std::optional<tensor_id> tensor_{};
  std::size_t step_;
};

/// A defect of the library itself, for instance a schedule of a solver that the exact checker rejects.
class internal_error : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

namespace detail {

/// A character of a text in UTF-8.
struct utf8_character {
  std::size_t length = 0;  ///< the length in bytes; 0: the bytes are not UTF-8
  std::uint32_t code = 0;  ///< its code point
};

/// The UTF-8 character at the start of `text`. Precondition: not empty.
[[nodiscard]] inline utf8_character utf8_at(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {1, first};
  const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (length == 0 || text.size() < length) return {};
  std::uint32_t code = first & (0x7FU >> length);
  for (const char c : text.substr(1, length - 1)) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0U) != 0x80) return {};
    code = code << 6U | (byte & 0x3FU);
  }
  const bool is_overlong = code < (length == 2 ? 0x80U : length == 3 ? 0x800U : 0x10000U);
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (is_overlong || is_surrogate || code > 0x10FFFF) return {};
  return {length, code};
}

/// True for code points that a terminal or a browser obeys in place of showing them: the control characters C0 and C1,
/// marks of the direction of text and all other format characters (category Cf of Unicode 15), and the separators of
/// lines and paragraphs.
[[nodiscard]] constexpr bool is_control_or_format(std::uint32_t code) noexcept {
  struct range {
    std::uint32_t first, last;
  };
  constexpr range all[] = {{0x0000, 0x001F},   {0x007F, 0x009F},   {0x00AD, 0x00AD},   {0x0600, 0x0605},
                           {0x061C, 0x061C},   {0x06DD, 0x06DD},   {0x070F, 0x070F},   {0x0890, 0x0891},
                           {0x08E2, 0x08E2},   {0x180E, 0x180E},   {0x200B, 0x200F},   {0x2028, 0x202E},
                           {0x2060, 0x206F},   {0xFEFF, 0xFEFF},   {0xFFF9, 0xFFFB},   {0x110BD, 0x110BD},
                           {0x110CD, 0x110CD}, {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A},
                           {0xE0001, 0xE0001}, {0xE0020, 0xE007F}};
  for (const range& r : all)
    if (code >= r.first && code <= r.last) return true;
  return false;
}

/// Appends `value` in `digits` hexadecimal digits.
inline void append_hexadecimal(std::string& out, std::uint32_t value, int digits) {
  for (int i = digits; i-- > 0;) out += "0123456789abcdef"[value >> (4 * i) & 15U];
}

}  // namespace detail

/// `text` for a message of one line, or for a terminal: characters that are not shown, but obeyed, and bytes that are
/// not UTF-8 are escaped; the text is cut after `longest` bytes. O(min(|text|, longest)).
///
/// Control characters below U+0080 and bytes become a backslash, an x and two hexadecimal digits. The other control
/// characters, marks of the direction of text and further format characters become a backslash, a u and four digits, or
/// a U and eight.
[[nodiscard]] inline std::string printable(std::string_view text, std::size_t longest = 60) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (out.size() >= longest) return out + "…";
    const auto [length, code] = detail::utf8_at(text.substr(i));
    if (length != 0 && !detail::is_control_or_format(code)) {
      out += text.substr(i, length);
    } else if (length < 2) {
      out += "\\x";
      detail::append_hexadecimal(out, static_cast<unsigned char>(text[i]), 2);
    } else {
      out += code < 0x10000 ? "\\u" : "\\U";
      detail::append_hexadecimal(out, code, code < 0x10000 ? 4 : 8);
    }
    i += length == 0 ? 1 : length;
  }
  return out;
}

}  // namespace REMAT_NAMESPACE
