// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/problem/problem.hpp"

namespace remat {

/// Where a step turns from forward to backward, for one that does not say: the last operation before which the most
/// tensors are alive in the listed order of the needed operations (final outputs do not count). What a forward makes
/// for its backward piles up until then. `num_operations` where there are none. O(operations + reads and writes) time.
[[nodiscard]] inline std::uint32_t turn_of(const flat_graph& s) {
  const std::uint32_t n = s.num_operations;
  std::vector<std::uint32_t> first(s.num_tensors, n), last(s.num_tensors, 0);
  for (std::uint32_t o = 0; o < n; ++o) {
    if (!s.needed[o]) continue;
    for (const std::uint32_t t : s.outputs[o]) first[t] = std::min(first[t], o);
    for (const std::uint32_t t : s.inputs[o]) last[t] = o;
  }
  std::vector<std::int64_t> change(std::size_t{n} + 1, 0);
  for (std::uint32_t t = 0; t < s.num_tensors; ++t)
    if (first[t] < last[t] && !s.final_output[t]) {
      ++change[first[t] + 1];
      --change[last[t] + 1];
    }
  std::uint32_t turn = n;
  std::int64_t alive = 0, most = 0;
  for (std::uint32_t o = 0; o < n; ++o) {
    alive += change[o];
    if (alive >= most) {
      most = alive;
      turn = o;
    }
  }
  return turn;
}

}  // namespace remat
