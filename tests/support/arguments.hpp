// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>
#include <vector>

namespace remat::test {

/// Calls `option(key, value)` for each pair `--KEY VALUE` of a program's arguments, and returns the others in order.
template <class Option>
[[nodiscard]] std::vector<std::string> read_arguments(int argc, char** argv, Option&& option) {
  std::vector<std::string> others;
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    if (key.rfind("--", 0) != 0 || i + 1 == argc)
      others.push_back(key);
    else
      option(key, std::string(argv[++i]));
  }
  return others;
}

}  // namespace remat::test
