// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "remat/schedule/lifetime.hpp"

namespace remat::test {

/// Addresses for a schedule's allocations.
struct placed {
  std::vector<std::int64_t> offsets;
  std::int64_t arena_bytes = 0;
};

/// Every allocation has bytes of its own.
[[nodiscard]] inline placed one_behind_the_other(const lifetimes& lives, std::int64_t alignment) {
  placed out;
  for (const allocation& x : lives.allocations) {
    out.offsets.push_back(out.arena_bytes);
    out.arena_bytes += (x.bytes + alignment - 1) / alignment * alignment;
  }
  return out;
}

/// Random addresses that reuse much memory: each allocation goes to the begin or the end of a random gap that is large
/// enough. O(n²) time.
[[nodiscard]] inline placed random_layout(std::span<const allocation> allocations, std::int64_t alignment,
                                          std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  placed out;
  out.offsets.assign(allocations.size(), 0);
  for (std::size_t a = 0; a < allocations.size(); ++a) {
    const allocation& x = allocations[a];
    const std::int64_t bytes = (x.bytes + alignment - 1) / alignment * alignment;
    std::vector<std::pair<std::int64_t, std::int64_t>> used;
    for (std::size_t b = 0; b < a; ++b)
      if (const allocation& y = allocations[b]; y.last > x.first && y.bytes > 0)
        used.emplace_back(out.offsets[b], out.offsets[b] + (y.bytes + alignment - 1) / alignment * alignment);
    std::sort(used.begin(), used.end());
    std::vector<std::int64_t> choices;
    std::int64_t end = 0;
    for (const auto& [begin, stop] : used) {
      if (begin - end >= bytes) {
        choices.push_back(end);
        choices.push_back(begin - bytes);
      }
      end = std::max(end, stop);
    }
    choices.push_back(end);
    out.offsets[a] = choices[engine() % choices.size()];
    out.arena_bytes = std::max(out.arena_bytes, out.offsets[a] + bytes);
  }
  return out;
}

/// \overload
[[nodiscard]] inline placed random_layout(const lifetimes& lives, std::int64_t alignment, std::uint64_t seed) {
  return random_layout(std::span(lives.allocations), alignment, seed);
}

}  // namespace remat::test
