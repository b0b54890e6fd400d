// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>

#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE::detail {

/// A character as JSON escapes it: `\u` and four digits, or two of these for a pair of surrogates.
[[nodiscard]] inline std::string json_escape(std::uint32_t code) {
  std::string out;
  const auto add = [&](std::uint32_t unit) {
    out += "\\u";
    append_hexadecimal(out, unit, 4);
  };
  if (code < 0x10000) {
    add(code);
  } else {
    add(0xD800 + ((code - 0x10000) >> 10U));
    add(0xDC00 + ((code - 0x10000) & 0x3FFU));
  }
  return out;
}

/// Writes JSON text to a stream through a buffer, and sets the commas. Numbers do not depend on the stream's locale.
///
///     json_writer(out).open('{').member("name", "x").key("sizes").open('[').value(1).close(']').close('}').end();
class json_writer {
 public:
  explicit json_writer(std::ostream& out) : out_(out) {}
  json_writer(const json_writer&) = delete;
  json_writer& operator=(const json_writer&) = delete;

  json_writer& open(char bracket) {
    separate();
    is_first_ = true;
    return raw({&bracket, 1});
  }
  json_writer& close(char bracket) {
    space("");
    is_first_ = false;
    return raw({&bracket, 1});
  }
  /// The next value, member of an object or closing bracket begins a line.
  json_writer& line() {
    begins_line_ = true;
    return *this;
  }
  /// The name of the next value. It must need no escapes.
  json_writer& key(std::string_view name) {
    separate();
    is_first_ = true;
    return raw("\"").raw(name).raw("\": ");
  }
  template <class T>
  json_writer& member(std::string_view name, const T& of) {
    return key(name).value(of);
  }

  /// A string. Bytes that are not UTF-8 become U+FFFD; "<" is escaped, so the text may stand within a script element,
  /// and so are control and format characters, which a terminal would obey.
  json_writer& value(std::string_view text) {
    separate();
    raw("\"");
    while (!text.empty()) {
      const auto [length, code] = utf8_at(text);
      if (length == 0)
        raw("\xEF\xBF\xBD");
      else if (code == '"' || code == '\\')
        raw("\\").raw(text.substr(0, 1));
      else if (is_control_or_format(code) || code == '<')
        raw(json_escape(code));
      else
        raw(text.substr(0, length));
      text.remove_prefix(std::max<std::size_t>(length, 1));
    }
    return raw("\"");
  }
  /// A number with the fewest digits that tell it from all others of its type; null if it is not finite.
  template <class T>
  requires std::is_arithmetic_v<T> &&(!std::is_same_v<T, bool>)json_writer& value(T number) {
    if constexpr (std::is_floating_point_v<T>)
      if (!std::isfinite(number)) return literal("null");
    std::array<char, 40> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size(), number);
    return literal({text.data(), static_cast<std::size_t>(end.ptr - text.data())});
  }
  /// A value that is JSON text already.
  json_writer& literal(std::string_view text) {
    separate();
    return raw(text);
  }

  /// Ends the text. The state of the stream says whether the text arrived.
  void end() {
    space("");
    flush();
  }

 private:
  json_writer& raw(std::string_view text) {
    constexpr std::size_t block = std::size_t{1} << 16U;
    buffer_ += text;
    if (buffer_.size() >= block) flush();
    return *this;
  }
  void flush() {
    out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    buffer_.clear();
  }
  void separate() {
    if (!is_first_) raw(",");
    space(is_first_ ? "" : " ");
    is_first_ = false;
  }
  void space(std::string_view text) {
    raw(begins_line_ ? "\n" : text);
    begins_line_ = false;
  }

  std::ostream& out_;
  std::string buffer_;
  bool is_first_ = true;  // nothing stands before the next value in its object or array, or behind its key
  bool begins_line_ = false;
};

}  // namespace REMAT_NAMESPACE::detail
