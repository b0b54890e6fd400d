// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/io/json.hpp"
#include "remat/problem/problem.hpp"

namespace remat::test {

/// The files with the ending .json in the folders `folders` of the test data, in the order of their names.
[[nodiscard]] inline std::vector<std::filesystem::path> json_files(const std::vector<std::string>& folders) {
  std::vector<std::filesystem::path> files;
  for (const std::string& folder : folders)
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(REMAT_TEST_DATA) / folder))
      if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

/// The training graphs among the test data.
[[nodiscard]] inline std::vector<std::filesystem::path> bundled_graphs() { return json_files({"graphs", "graphs/rk"}); }

/// The chains among the test data.
[[nodiscard]] inline std::vector<std::filesystem::path> bundled_chains() { return json_files({"chains"}); }

/// A bundled training graph by its name, such as "unet5-b16-256" or "rk/fno1d", without a budget.
[[nodiscard]] inline problem bundled_problem(const std::string& name) {
  return read_training_step(std::filesystem::path(REMAT_TEST_DATA) / "graphs" / (name + ".json")).instance;
}

/// `p` with the budget `part` × the baseline's peak, rounded down.
[[nodiscard]] inline problem within(const problem& p, double part) {
  return p.with_budget(static_cast<std::int64_t>(part * static_cast<double>(p.graph().baseline_peak)));
}

}  // namespace remat::test
