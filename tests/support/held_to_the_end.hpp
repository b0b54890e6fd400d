// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>

#include "remat/problem/flat_graph.hpp"
#include "remat/problem/problem.hpp"

namespace remat::test {

/// A line of four operations of a unit of time each, whose first tensor is a final output: a → b → c → d, all in 10^9
/// bytes but the last. Its link copies 2 × 10^9 bytes in a unit of time. Within all but some of the bytes, a copy of
/// the first tensor hides behind the computes, so the least time is 4.
[[nodiscard]] inline problem held_to_the_end(std::int64_t third_bytes, std::int64_t budget) {
  flat_graph g;
  g.num_operations = g.num_tensors = 4;
  g.outputs.values = {0, 1, 2, 3};
  g.outputs.begin = {0, 1, 2, 3, 4};
  g.inputs.values = {0, 1, 2};
  g.inputs.begin = {0, 0, 1, 2, 3};
  g.final_outputs = {0, 3};
  g.bytes = {1'000'000'000, 1'000'000'000, third_bytes, 1};
  g.time = {1, 1, 1, 1};
  return problem::from_flat(g, budget).with_link({.out = 2e9, .in = 2e9, .latency = 0});
}

}  // namespace remat::test
