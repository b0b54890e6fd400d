// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace remat::test {

/// The least number of steps run forward that reverse l steps with c states kept beside the first, by the plain
/// recurrence: [c][l]. O(most_c · most_l²) time.
[[nodiscard]] inline std::vector<std::vector<std::uint64_t>> least_advances(std::size_t most_l, std::size_t most_c) {
  std::vector<std::vector<std::uint64_t>> t(most_c + 1, std::vector<std::uint64_t>(most_l + 1, 0));
  for (std::size_t c = 0; c <= most_c; ++c)
    for (std::size_t l = 2; l <= most_l; ++l) {
      t[c][l] = l * (l - 1) / 2;
      for (std::size_t j = 1; c > 0 && j < l; ++j) t[c][l] = std::min(t[c][l], j + t[c - 1][l - j] + t[c][j]);
    }
  return t;
}

}  // namespace remat::test
