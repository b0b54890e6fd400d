// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/core/error.hpp"

#include "remat/core/detail/linkage.hpp"

namespace remat {

REMAT_INLINE std::string printable(std::string_view text, std::size_t longest) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (out.size() >= longest) return out + "…";
    const auto byte = static_cast<unsigned char>(text[i]);
    std::size_t length = byte < 0x80                   ? 1
                         : byte >= 0xC2 && byte < 0xE0 ? 2
                         : byte >= 0xE0 && byte < 0xF0 ? 3
                         : byte >= 0xF0 && byte < 0xF5 ? 4
                                                       : 0;
    for (std::size_t k = 1; k < length; ++k)
      if (i + k >= text.size() || (static_cast<unsigned char>(text[i + k]) & 0xC0U) != 0x80) length = 0;
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

}  // namespace remat
