// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE::detail {

/// The text without a byte order mark at its beginning, as some editors write it.
[[nodiscard]] inline std::string_view without_byte_order_mark(std::string_view text) noexcept {
  return text.substr(text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
}

/// The format of a file that begins like `text`, and a way to what a reader of text expects, for people: "is compressed
/// by gzip; …". Empty if the file may be text.
[[nodiscard]] inline std::string_view foreign_format(std::string_view text) noexcept {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 10> known{
      {{"\x1F\x8B", "is compressed by gzip; expected its content (gunzip)"},
       {"\xFD\x37zXZ", "is compressed by xz; expected its content (unxz)"},
       {"BZh", "is compressed by bzip2; expected its content (bunzip2)"},
       {"\x28\xB5\x2F\xFD", "is compressed by zstd; expected its content (unzstd)"},
       {"PK\x03\x04", "is a zip archive, as PyTorch writes .pt and .pt2; expected text"},
       {"\x80\x02", "is a Python pickle; expected text"},
       {"\x80\x03", "is a Python pickle; expected text"},
       {"\x80\x04", "is a Python pickle; expected text"},
       {"\xFF\xFE", "is text in UTF-16; expected UTF-8"},
       {"\xFE\xFF", "is text in UTF-16; expected UTF-8"}}};
  for (const auto& [begin, format] : known)
    if (text.starts_with(begin)) return format;
  if (text.size() >= 2 && (text[0] == '\0') != (text[1] == '\0') && (text[0] == '{' || text[1] == '{'))
    return "is text in UTF-16; expected UTF-8";
  // XLA's HloProto and HloModuleProto begin with a field of bytes and its length, which no text has there.
  const unsigned char length = text.size() < 2 ? ' ' : static_cast<unsigned char>(text[1]);
  const bool is_control = length < ' ' && length != '\t' && length != '\n' && length != '\r';
  if (text.starts_with('\n') && (is_control || length >= 0x80U))
    return "is a protocol buffer, as XLA's .hlo.pb; expected the module's text (--xla_dump_hlo_as_text)";
  return {};
}

/// Throws `bad_file` for the content of `file` if it is in a format that the library knows to be no text.
inline void refuse_foreign_format(std::string_view text, const std::string& file) {
  if (const std::string_view format = foreign_format(text); !format.empty())
    throw bad_file(file, "", std::string(format));
}

}  // namespace REMAT_NAMESPACE::detail
