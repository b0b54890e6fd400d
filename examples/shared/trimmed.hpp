// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace shared {

/// `text` without the spaces at its ends.
[[nodiscard]] inline std::string_view trimmed(std::string_view text) {
  const std::size_t from = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(from, text.find_last_not_of(' ') + 1 - from);
}

}  // namespace shared
