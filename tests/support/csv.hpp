// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace remat::test {

/// The fields of one line of a table. A field in double quotes may hold commas; its quotes are left out.
[[nodiscard]] inline std::vector<std::string> csv_fields(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      fields.emplace_back();
    else
      fields.back() += c;
  }
  return fields;
}

/// The fields of a table's rows, without the header. For tests and benchmarks. Throws std::runtime_error where the file
/// cannot be read.
[[nodiscard]] inline std::vector<std::vector<std::string>> read_csv(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error("cannot read " + file.string());
  std::vector<std::vector<std::string>> rows;
  std::string line;
  for (bool header = true; std::getline(in, line); header = false)
    if (!header) rows.push_back(csv_fields(line));
  return rows;
}

}  // namespace remat::test
