// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/solver/solution.hpp"

namespace remat::test {

/// What holds of every solver's answer, checked from the outside.
inline void check_answer(const problem& p, const solution& s) {
  CHECK(s.lower_bound >= p.graph().needed_time);
  switch (s.status) {
    case solve_status::optimal:
    case solve_status::feasible: {
      REQUIRE(s.has_schedule());
      const check_report report = check(p, *s.plan);
      CHECK(report.valid());
      CHECK(report.peak_bytes == s.peak_bytes);
      CHECK(report.peak_bytes <= p.budget());
      CHECK(report.time == s.time);
      CHECK(report.time >= p.graph().needed_time * (1 - 1e-12));
      break;
    }
    default:
      CHECK_FALSE(s.has_schedule());
  }
}

/// The training graphs among the test data.
[[nodiscard]] inline std::vector<std::filesystem::path> bundled_graphs() {
  std::vector<std::filesystem::path> files;
  for (const char* folder : {REMAT_TEST_DATA "/graphs", REMAT_TEST_DATA "/graphs/rk"})
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

/// The chains among the test data.
[[nodiscard]] inline std::vector<std::filesystem::path> bundled_chains() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(REMAT_TEST_DATA "/chains"))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace remat::test
