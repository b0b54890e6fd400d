// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>
#include <string_view>

namespace remat_plan {

/// `word` as a shell reads it: in single quotes, unless it is made of plain characters alone.
[[nodiscard]] inline std::string quoted_for_shell(std::string_view word) {
  constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(plain) == std::string_view::npos) return std::string(word);
  std::string text = "'";
  for (const char c : word) {
    if (c == '\'')
      text += "'\\''";
    else
      text += c;
  }
  return text + "'";
}

/// The command line, to be pasted into a shell.
[[nodiscard]] inline std::string command_text(int argc, const char* const* argv) {
  std::string text;
  for (int i = 0; i < argc; ++i) {
    if (i != 0) text += ' ';
    text += quoted_for_shell(argv[i]);
  }
  return text;
}

}  // namespace remat_plan
