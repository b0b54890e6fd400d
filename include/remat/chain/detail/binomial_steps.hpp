// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/core/detail/binomial.hpp"

namespace REMAT_NAMESPACE::detail {

/// The steps of binomial checkpointing on a chain of `length` stages with `slots` checkpoints beside the input. There
/// are `binomial::advances` steps, 2 · length steps, and two of the loss. O(steps + length · r) time.
[[nodiscard]] inline std::vector<chain_step> binomial_steps(std::uint32_t length, std::uint32_t slots) {
  using binomial::range;
  std::vector<chain_step> out;
  out.reserve(static_cast<std::size_t>(binomial::advances(length, slots)) + 2 * std::size_t{length} + 2);
  binomial::walker<range> moves;
  moves.add({1, std::uint64_t{length} + 1, slots});
  while (true) {
    const auto move = moves.next(binomial::equal_steps{});
    const auto first = static_cast<std::uint32_t>(move.from), last = static_cast<std::uint32_t>(move.to);
    if (move.kind == move.end) return out;
    if (move.kind == move.advance) {
      out.push_back({chain_action::forward_checkpoint, first});
      for (std::uint32_t i = first + 1; i < last; ++i) out.push_back({chain_action::forward_none, i});
      continue;
    }
    out.push_back({chain_action::forward_all, first});
    if (first == length) {
      out.push_back({chain_action::forward_all, length + 1});
      out.push_back({chain_action::backward, length + 1});
    }
    out.push_back({chain_action::backward, first});
  }
}

}  // namespace REMAT_NAMESPACE::detail
