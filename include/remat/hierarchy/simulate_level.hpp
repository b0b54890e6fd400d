// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "remat/hierarchy/level_problem.hpp"

namespace remat {

/// For each tensor of a level the first and the last run that writes it: the same where it is made by one run alone,
/// `level_problem::none` where by none.
struct level_writers {
  std::vector<std::uint32_t> first{}, last{};

  /// Precondition: the tensors of all variants are there.
  explicit level_writers(const level_problem& level);
  /// Several runs add to it.
  [[nodiscard]] bool several(std::uint32_t x) const { return first[x] != last[x]; }
};

/// Throws `bad_argument`, naming the place, unless `level` is one: every run has a variant; tensors exist and are
/// listed ascending, each once; sizes, peaks and times are finite and not negative, all sizes together below 2^60; what
/// is read is written by earlier runs alone, and by some; a tensor of several runs is written by all variants of these,
/// none of which may run again. O(size of the level) time.
void require_valid(const level_problem& level);

/// What a sequence of choices comes to.
struct level_report {
  bool legal = false;
  double time = 0;
  std::int64_t peak_bytes = 0;  ///< what is there when a run begins and its peak, or what is there afterwards
  std::size_t wrong = 0;        ///< where the sequence is not legal: the first choice that is wrong
  std::string message{};        ///< one line; empty if legal
};

/// Whether `choices` is a schedule of the level, from the definition alone, and what it takes. It shares nothing with
/// what makes schedules.
///
/// Frees are as early as can be: a tensor is there while a later choice reads it before it is written again, or it is
/// an output; one that several runs write, from the first of them to the last, and on to its last read. Exact in
/// integers. Precondition: `require_valid(level)`. O(choices × tensors of each) time.
[[nodiscard]] level_report simulate_level(const level_problem& level, std::span<const level_problem::choice> choices);

/// The choices without the runs that are in vain: not the first of theirs, and nothing that they write is read before
/// it is written again. Precondition: `simulate_level` calls them legal. Time and peak are not more than before.
[[nodiscard]] std::vector<level_problem::choice> without_runs_in_vain(const level_problem& level,
                                                                      std::span<const level_problem::choice> choices);

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/hierarchy/impl/simulate_level.hpp"
#endif
