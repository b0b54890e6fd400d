// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "remat/method/hiremate/detail/level_problem.hpp"

namespace remat::detail {

/// For each tensor of a level the first and the last run that writes it; `level_problem::none` for a tensor that no run
/// writes.
struct level_writers {
  std::vector<std::uint32_t> first{};  ///< tensor → the first run that writes it, or none
  std::vector<std::uint32_t> last{};   ///< tensor → the last run that writes it, or none

  /// Precondition: the tensors of all variants exist. O(size of the level) time.
  explicit level_writers(const level_problem& level);
  /// True when several runs write tensor x.
  [[nodiscard]] bool several(std::uint32_t x) const { return first[x] != last[x]; }
};

/// Throws `bad_argument`, naming the place, unless the level is valid: every run has a variant; tensors exist and are
/// listed ascending, each once; sizes, peaks and times are finite and not negative, and all sizes together are at most
/// 2^60; a tensor that is read is written by at least one run, and only by earlier ones; a tensor of several runs is
/// written by all variants of these runs, none of which may run again. O(size of the level) time.
void require_valid(const level_problem& level);

/// The result of `simulate_level`.
struct level_report {
  bool legal = false;           ///< the choices are a schedule of the level
  double time = 0;              ///< the sum of the times of all choices; of use only if legal
  std::int64_t peak_bytes = 0;  ///< the most bytes during any run, or after it
  std::size_t wrong = 0;        ///< the first illegal choice, if one is
  std::string message{};        ///< one line; empty if legal
};

/// Checks from the definition that `choices` is a schedule of the level, and measures its time and peak. Shares no code
/// with the solvers.
///
/// Tensors are freed as early as possible: a tensor is resident while a later choice reads it before it is written
/// again, or when it is an output; a tensor of several runs from the first of these runs to its last read. Bytes are
/// exact. Precondition: `require_valid(level)` does not throw. O(choices × tensors of each) time.
[[nodiscard]] level_report simulate_level(const level_problem& level, std::span<const level_problem::choice> choices);

/// Removes runs in vain: repeated runs none of whose tensors is read before it is written again. Precondition:
/// `simulate_level` calls the choices legal. Neither time nor peak grows.
[[nodiscard]] std::vector<level_problem::choice> without_runs_in_vain(const level_problem& level,
                                                                      std::span<const level_problem::choice> choices);

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/hiremate/impl/simulate_level.hpp"
#endif
