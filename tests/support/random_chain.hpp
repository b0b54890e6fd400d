// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "remat/chain/chain.hpp"

namespace remat::test {

/// A random chain with whole times (sums are exact) and small sizes, the same for the same seed.
[[nodiscard]] inline chain random_chain(std::uint64_t seed, std::size_t length) {
  std::mt19937_64 engine(seed);
  const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(engine() % n); };
  std::vector<chain_stage> stages;
  for (std::size_t i = 0; i < length; ++i) {
    chain_stage s;
    s.forward_time = static_cast<double>(below(8));
    s.backward_time = static_cast<double>(below(8));
    s.output_bytes = below(7);
    s.saved_bytes = s.output_bytes + below(12);
    s.forward_overhead_bytes = below(3) == 0 ? below(9) : 0;
    s.backward_overhead_bytes = below(3) == 0 ? below(9) : 0;
    stages.push_back(s);
  }
  return chain("random " + std::to_string(seed), below(6), std::move(stages));
}

/// `length` stages of the same kind: x_i = 1 byte, `saved` bytes, forward 1, backward free.
[[nodiscard]] inline chain unit_chain(std::size_t length, std::int64_t saved) {
  chain_stage s;
  s.forward_time = 1;
  s.output_bytes = 1;
  s.saved_bytes = saved;
  return chain("unit", 1, std::vector<chain_stage>(length, s));
}

/// `length` steps of an adjoint computation that are alike: a state has a byte, what the backward of a step needs two,
/// forwards and backwards take 1. Within c + 4 bytes there are c checkpoints, the first state among them.
[[nodiscard]] inline chain adjoint_chain(std::size_t length) {
  chain_stage s;
  s.forward_time = s.backward_time = 1;
  s.output_bytes = 1;
  s.saved_bytes = 2;
  return chain("adjoint", 1, std::vector<chain_stage>(length, s));
}

}  // namespace remat::test
