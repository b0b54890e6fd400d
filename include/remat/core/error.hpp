// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

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

/// The length in bytes of the UTF-8 character at the start of `text`; 0 if the bytes are not UTF-8. Precondition: not
/// empty.
[[nodiscard]] inline std::size_t utf8_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (length == 0 || text.size() < length) return 0;
  std::uint32_t code = first & (0x7FU >> length);
  for (const char c : text.substr(1, length - 1)) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0U) != 0x80) return 0;
    code = code << 6U | (byte & 0x3FU);
  }
  const bool is_overlong = code < (length == 2 ? 0x80U : length == 3 ? 0x800U : 0x10000U);
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  return is_overlong || is_surrogate || code > 0x10FFFF ? 0 : length;
}

}  // namespace detail

/// `text` for a message of one line: control characters and bytes that are not UTF-8 become a backslash, an x and two
/// hexadecimal digits, and the text is cut after `longest` bytes. O(min(|text|, longest)).
[[nodiscard]] inline std::string printable(std::string_view text, std::size_t longest = 60) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (out.size() >= longest) return out + "…";
    const auto byte = static_cast<unsigned char>(text[i]);
    const std::size_t length = detail::utf8_length(text.substr(i));
    if (length == 0 || byte < 0x20 || byte == 0x7F) {
      constexpr char digits[] = "0123456789abcdef";
      out += {'\\', 'x', digits[byte >> 4U], digits[byte & 15U]};
      ++i;
    } else {
      out += text.substr(i, length);
      i += length;
    }
  }
  return out;
}

}  // namespace REMAT_NAMESPACE
