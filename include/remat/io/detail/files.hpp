// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <istream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/io/detail/whole_file.hpp"

namespace REMAT_NAMESPACE::detail {

/// Opens a file to read. Throws `bad_file` for a missing file, a directory, and a file that cannot be opened; the
/// message has the system's reason.
[[nodiscard]] inline std::ifstream open_to_read(const std::filesystem::path& path) {
  const std::string name = printable(path.string(), 4096);
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (status.type() == std::filesystem::file_type::not_found) throw bad_file(name, "", "there is no such file");
  if (!std::filesystem::exists(status)) throw bad_file(name, "", "cannot be opened for reading: " + code.message());
  if (std::filesystem::is_directory(status)) throw bad_file(name, "", "is a directory; expected a file");
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) throw bad_file(name, "", "cannot be opened for reading" + whole_file::because(errno));
  return in;
}

/// Reads a text in blocks, to its end, or until `ends(block)` is true: that block is the last one. Throws `bad_file` if
/// it cannot be read; `file` is its name.
template <class Ends>
[[nodiscard]] std::string read_text(std::istream& in, const std::string& file, Ends&& ends) {
  std::string text;
  std::vector<char> block(std::size_t{1} << 16U);
  errno = 0;
  while (in.good()) {
    in.read(block.data(), static_cast<std::streamsize>(block.size()));
    const std::string_view got(block.data(), static_cast<std::size_t>(in.gcount()));
    text += got;
    if (ends(got)) break;
  }
  if (in.bad()) throw bad_file(file, "", "cannot be read to its end" + whole_file::because(errno));
  return text;
}
[[nodiscard]] inline std::string read_text(std::istream& in, const std::string& file) {
  return read_text(in, file, [](std::string_view) { return false; });
}

/// Writes a file, whole or not at all (`replace_file`). Throws `bad_file` for a directory, and for a file that cannot
/// be written; the message has the system's reason.
inline void write_text(const std::filesystem::path& path, std::string_view text) {
  const std::string name = printable(path.string(), 4096);
  std::error_code code;
  if (std::filesystem::is_directory(path, code))
    throw bad_file(name, "", "is a directory; expected the name of a file");
  if (const std::string why = replace_file(path, text); !why.empty())
    throw bad_file(name, "", "cannot be written: " + why);
}

}  // namespace REMAT_NAMESPACE::detail
