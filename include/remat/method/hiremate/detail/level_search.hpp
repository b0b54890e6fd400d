// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/method/hiremate/detail/level_builder.hpp"
#include "remat/method/hiremate/detail/level_problem.hpp"

namespace remat::detail {

/// Options of `search_level`.
struct level_search_options {
  std::uint32_t prices = 10;  ///< of saved bytes that are tried
  std::uint32_t rounds = 2;   ///< over all children, trying the options next to the chosen one
  bool escalate = true;       ///< try harder for the options that a price gives
};

/// Judges the choices that `search_level` found: a value (less is better), infinite for choices of no use.
using level_judge = std::function<double(std::vector<level_problem::choice>)>;

/// Schedules of a level: an option is fixed for each child by a price on saved bytes, which leaves an ordinary problem
/// for `evict` (to escalate: with its last resorts, and then `twremat`); then single children's options are exchanged
/// while that helps. Heuristic; a start for the integer program, and the only method if that is too large.
///
/// `judge` is called with every schedule found, and may judge by the operations that it expands to. Solves at most
/// 2 · (prices + 2 + rounds · 2 · children) problems, counts their work, and returns their number. Polls before each;
/// the solvers keep the limits themselves. Exceptions of `judge` propagate.
std::size_t search_level(const level_builder& builder, std::span<const level_child> children, std::int64_t budget,
                         run_clock& clock, const level_search_options& options, const level_judge& judge);

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/hiremate/impl/level_search.hpp"
#endif
