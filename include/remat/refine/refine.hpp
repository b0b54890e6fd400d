// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE {

/// Options of `refine`.
struct refine_options {
  double lower_bound = 0;                ///< a proven lower bound on the time
  double gap = default_gap;              ///< end after a round whose best time is at most (1 + gap) × the bound
  std::uint32_t searches = 8;            ///< independent of the number of threads; 0 means 1; fewer on large graphs
  std::uint32_t rounds = 6;              ///< the rounds of a cycle, each from less heat; 0 means 1
  std::uint64_t default_moves = 200000;  ///< the number of moves if neither a time nor a work limit is set
  run_control run{};                     ///< limits, seed, threads, progress
};

/// The best schedule that `refine` has found.
struct refine_result {
  schedule plan{};                                        ///< never slower than the best start
  double time = std::numeric_limits<double>::infinity();  ///< the plan's time, in the cost model's unit
  std::int64_t peak_bytes = 0;                            ///< the plan's peak
  std::uint64_t moves = 0;                                ///< tried by all searches together
  /// `cancelled` or `deadline` if that ended the search. Otherwise `work` if the number of moves is limited, that is,
  /// under a work limit or without a time limit, and `none` if it is not.
  stop_reason stopped = stop_reason::none;
  bool out_of_memory = false;  ///< memory ran out in a search: the plan is the best that was known before that round
};

/// Improves schedules by simulated annealing \cite kirkpatrick1983annealing over the moves of `refine_moves`. Several
/// searches with different temperatures run side by side from different starts; after every cycle, or after every round
/// near the bound, the worst one continues from the best schedule. The temperature falls in cycles, each four times as
/// long as the one before; the last cycle takes what is left of the limits. So an easy graph is solved in the same time
/// under any limit.
///
/// Throws `bad_argument` unless `starts` holds at least one schedule and each is legal, within the budget of `p`
/// and without copies to the host, and for a lower bound that is NaN. The result has passed the exact checker. Work:
/// `work_of::move` for each move; a work limit is never exceeded. Throws `std::bad_alloc` only before the first round.
/// A search for one round is a piece (`core/run.hpp`), which a crew may run if rounds are long: for a seed and a work
/// limit the result is the same for any number of threads and any crew. Cancellation: polls every 32 moves, and within
/// a move every 4096 steps of a search. `on_progress` is called between moves on the calling thread.
[[nodiscard]] refine_result refine(const problem& p, std::span<const schedule> starts,
                                   const refine_options& options = {});

/// How another process runs the searches of `refine`, for a crew.
[[nodiscard]] piece_kind refine_pieces();

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/refine/impl/refine.hpp"
#endif
