// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "remat/chain/chain_problem.hpp"

namespace remat {

/// What a step does with a stage of a chain. A forward of stage i reads x_{i−1} and makes x_i.
enum class chain_action : std::uint8_t {
  forward_none,        ///< keeps nothing: frees x_{i−1}, unless stage i − 1 saved it
  forward_checkpoint,  ///< keeps its input x_{i−1}
  forward_all,         ///< keeps its input and x̄_i, which contains x_i
  backward  ///< reads and frees x_{i−1}, x̄_i and the gradient of x_i, and makes the gradient of x_{i−1}
};

/// One step of a chain's schedule. Stages count from 1; stage L + 1 is the loss, whose forward is `forward_all`.
struct chain_step {
  chain_action action = chain_action::forward_all;  ///< what the step does
  std::uint32_t stage = 1;                          ///< 1 … L + 1
  std::uint32_t option = 0;  ///< of the stage, for `forward_all` and `backward`; 0 for other forwards
  /// Compares all members.
  friend bool operator==(const chain_step&, const chain_step&) = default;
};

/// The findings of the exact simulation of a chain's schedule.
struct chain_report {
  bool legal = false;           ///< every step found what it reads, and every backward ran once
  std::size_t at = 0;           ///< the first illegal step; the number of steps: the schedule ends too early
  std::string message{};        ///< why it is not legal
  std::int64_t peak_bytes = 0;  ///< the largest memory of a step, with x_0
  double time = 0;              ///< the sum over all steps
  std::uint64_t forwards = 0;   ///< runs of forwards, without the loss
};

/// Runs a chain's schedule exactly, by the memory rules of the Rotor model. Shares no code with any solver.
///
/// Allocated are x_0 (to the end), every other x_i and x̄_i that is kept, and one gradient: that of x_t after the
/// backward of stage t + 1, and none before the backward of the loss. A forward of stage i needs φ_i beside its output,
/// x_i or x̄_i. A backward needs β_i, and the gradient of x_{i−1} in place of that of x_i. O(steps + L) time.
[[nodiscard]] chain_report simulate(const chain_problem& p, std::span<const chain_step> steps);

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/chain/impl/chain_schedule.hpp"
#endif
