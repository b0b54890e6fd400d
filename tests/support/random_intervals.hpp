// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "remat/memory/check.hpp"

namespace remat::test {

/// `n` intervals within [0, `times`) of 0 to `largest` bytes.
[[nodiscard]] inline std::vector<interval> random_intervals(std::uint64_t seed, std::size_t n, std::int64_t times,
                                                            std::int64_t largest) {
  std::mt19937_64 engine(seed);
  const auto below = [&](std::int64_t k) {
    return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(k));
  };
  std::vector<interval> out(n);
  for (interval& x : out) {
    x.lower = below(times);
    x.upper = x.lower + 1 + below(times - x.lower);
    x.size = below(largest + 1);
  }
  return out;
}

/// Intervals whose load is `load` at each of `times` times: an arena of that size has no hole.
[[nodiscard]] inline std::vector<interval> full_intervals(std::uint64_t seed, std::int64_t times, std::int64_t load) {
  std::mt19937_64 engine(seed * 977 + static_cast<std::uint64_t>(load));
  std::vector<interval> out;
  std::vector<std::size_t> open;
  std::int64_t now = 0;
  for (std::int64_t t = 0; t < times; ++t) {
    for (std::size_t k = open.size(); k-- > 0;)
      if (engine() % 2 == 0) {
        out[open[k]].upper = t;
        now -= out[open[k]].size;
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(k));
      }
    while (now < load) {
      std::int64_t size = 1 + static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(load - now));
      if (size > load / 2) size = std::max<std::int64_t>(1, size / 2);
      open.push_back(out.size());
      out.push_back({t, times, size});
      now += size;
    }
  }
  return out;
}

}  // namespace remat::test
