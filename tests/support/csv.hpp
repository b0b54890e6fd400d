// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace remat::test {

/// The fields of a table's rows, without the header; there is no quoting.
[[nodiscard]] inline std::vector<std::vector<std::string>> read_csv(const std::string& file) {
  std::ifstream in(file);
  std::vector<std::vector<std::string>> rows;
  std::string line;
  for (bool header = true; std::getline(in, line); header = false) {
    if (header) continue;
    std::istringstream fields(line);
    std::vector<std::string> row;
    for (std::string field; std::getline(fields, field, ',');) row.push_back(field);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace remat::test
