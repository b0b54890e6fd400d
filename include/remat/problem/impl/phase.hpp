// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/problem/detail/phase.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace remat::detail {

REMAT_INLINE std::uint32_t find_forward_end(const flat_graph& g) {
  const auto is_backward = [](op_phase p) { return p == op_phase::backward; };
  const auto turn = std::find_if(g.phase.begin(), g.phase.end(), is_backward);
  const bool in_order = std::all_of(turn, g.phase.end(), is_backward);
  const bool complete = std::find(g.phase.begin(), turn, op_phase::unknown) == turn;
  if (turn == g.phase.begin() || turn == g.phase.end() || !in_order || !complete) return estimate_forward_end(g);
  return static_cast<std::uint32_t>(turn - g.phase.begin());
}

REMAT_INLINE std::uint32_t estimate_forward_end(const flat_graph& g) {
  const std::uint32_t n = g.num_operations;
  std::vector<std::uint32_t> first_write(g.num_tensors, n), last_read(g.num_tensors, 0);
  for (std::uint32_t o = 0; o < n; ++o) {
    if (!g.needed[o]) continue;
    for (const std::uint32_t t : g.outputs[o]) first_write[t] = std::min(first_write[t], o);
    for (const std::uint32_t t : g.inputs[o]) last_read[t] = o;
  }
  std::vector<std::int64_t> change(std::size_t{n} + 1, 0);
  for (std::uint32_t t = 0; t < g.num_tensors; ++t)
    if (first_write[t] < last_read[t] && !g.final_output[t]) {
      ++change[first_write[t] + 1];
      --change[last_read[t] + 1];
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

}  // namespace remat::detail
