// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <filesystem>
#include <vector>

namespace remat::test {

/// The files with the ending .json in `folder` and in the folder rk in it, in the order of their names.
[[nodiscard]] inline std::vector<std::filesystem::path> graphs_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& where : {folder, folder / "rk"})
    if (std::filesystem::is_directory(where))
      for (const auto& entry : std::filesystem::directory_iterator(where))
        if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace remat::test
