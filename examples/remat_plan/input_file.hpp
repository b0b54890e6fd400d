// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fstream>
#include <iostream>
#include <istream>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "remat/core/error.hpp"
#include "remat/io/detail/files.hpp"
#include "remat/io/hlo_text.hpp"
#include "remat/io/json.hpp"
#include "shared/program.hpp"

namespace remat_plan {

/// What the input file holds: JSON, or the text of an HLO module.
struct input_file {
  std::string name{};  ///< for messages
  std::variant<remat::json_document, remat::hlo_module> content;
};

namespace reading {

/// The name of a file in messages.
[[nodiscard]] inline std::string file_name(const std::string& path) {
  return path == shared::standard_stream ? "standard input" : remat::printable(path, 4096);
}

/// Reads a text that is the content of the file `path`: an HLO module by its beginning, or by the file's name.
[[nodiscard]] inline input_file read_input_text(std::string_view text, const std::string& path) {
  const std::string name = file_name(path);
  const std::string_view as_named(path);
  if (remat::is_hlo_text(text) || as_named.ends_with(".hlo") || as_named.ends_with(".hlo.txt"))
    return {name, remat::parse_hlo(text, name)};
  return {name, remat::json_document(text, name)};
}

/// The content of a file, or of standard input for "-".
[[nodiscard]] inline std::string input_text(const std::string& path) {
  // No input has a zero byte; the rest behind one, perhaps without end, is not read.
  const auto read = [&](std::istream& in) {
    return remat::detail::read_text(in, file_name(path),
                                    [](std::string_view block) { return block.find('\0') != std::string_view::npos; });
  };
  if (path == shared::standard_stream) return read(std::cin);
  std::ifstream in = remat::detail::open_to_read(path);
  return read(in);
}

/// Reads a file, or standard input for "-".
[[nodiscard]] inline input_file read_input_file(const std::string& path) {
  return read_input_text(input_text(path), path);
}

}  // namespace reading

}  // namespace remat_plan
