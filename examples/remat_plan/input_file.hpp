// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <fstream>
#include <iostream>
#include <istream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "remat/core/error.hpp"
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

/// True if the file is an HLO module: by its name, or because it begins as one.
[[nodiscard]] inline bool is_hlo(const std::string& path) {
  if (path == shared::standard_stream) return std::cin.peek() == 'H';  // no JSON begins so
  if (std::string_view(path).ends_with(".hlo") || std::string_view(path).ends_with(".hlo.txt")) return true;
  std::string start(std::size_t{1} << 12U, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(in.gcount()));
  return remat::is_hlo_text(start);
}

/// Reads a text that is the content of the file `path`.
[[nodiscard]] inline input_file read_input_text(std::string_view text, const std::string& path, bool is_hlo) {
  const std::string name = file_name(path);
  if (is_hlo) return {name, remat::parse_hlo(text, name)};
  return {name, remat::json_document(text, name)};
}

/// Reads a file, or standard input for "-".
[[nodiscard]] inline input_file read_input_file(const std::string& path) {
  const std::string name = file_name(path);
  const bool standard = path == shared::standard_stream;
  if (!is_hlo(path))
    return {name, standard ? remat::json_document::read(std::cin, name) : remat::json_document::read(path)};
  if (!standard) return {name, remat::read_hlo(path)};
  return read_input_text(std::string{std::istreambuf_iterator<char>(std::cin), {}}, path, true);
}

}  // namespace reading

}  // namespace remat_plan
