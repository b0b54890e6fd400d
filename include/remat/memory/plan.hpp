// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/core/run.hpp"
#include "remat/memory/check.hpp"

namespace REMAT_NAMESPACE {

/// Options of `plan_memory`.
struct memory_plan_options {
  /// An arena is near the bound if it exceeds the bound by at most 1 / `near_bound` of the bound.
  static constexpr std::int64_t near_bound = 50;
  /// Without a limit of time or work, the search does this work (at most some 60 ms of processor time) …
  static constexpr std::uint64_t default_work = 12'000'000;
  /// … and goes on until the arena is near the bound, or this work is done (some 1.5 s).
  static constexpr std::uint64_t further_work = 250'000'000;

  std::int64_t alignment = 256;   ///< bytes, at least 1: every offset is a multiple of it
  std::int64_t target_bytes = 0;  ///< bytes, at least 0: an arena of at most this size ends the search
  run_control run{};              ///< a unit of work is a block or a section visited; `threads` is ignored
};

/// Figures of a search of `plan_memory`.
struct memory_plan_statistics {
  std::uint64_t moves = 0;                  ///< moves of the local search
  std::uint64_t nodes = 0;                  ///< nodes of the depth-first search
  std::uint64_t work = 0;                   ///< blocks and sections visited
  double seconds = 0;                       ///< wall clock
  stop_reason stopped = stop_reason::none;  ///< the limit that ended the search; `none` if the arena is optimal
};

/// Offsets of intervals in one arena.
struct memory_plan {
  std::vector<std::int64_t> offsets;    ///< bytes, of each interval; multiples of `alignment`
  std::int64_t arena_bytes = 0;         ///< a multiple of `alignment`
  std::int64_t lower_bound = 0;         ///< the largest load: the rounded sizes of all intervals alive at one time
  std::int64_t alignment = 1;           ///< bytes; the alignment of the options
  bool optimal = false;                 ///< proven: the arena meets the bound, or a complete search found none smaller
  memory_plan_statistics statistics{};  ///< figures of the search
};

/// Gives each interval an offset in one arena, so that no two intervals that are alive at the same time share a byte,
/// and the arena is small: dynamic storage allocation with known lifetimes, which is NP-hard \cite garey1979np.
///
///     const lifetimes lives = lifetimes_of(p, *solution.plan);
///     const memory_plan arena = plan_memory(lives);  // offsets of lives.allocations
///
/// Method. Intervals are divided into components, between times when none is alive (`memory/detail/component.hpp`).
/// Each component is packed on a skyline \cite sekiyama2018memory by three properties of its intervals and, up to 4096
/// intervals, by first fit (`memory/detail/skyline.hpp`). A component that is then above the bound is squeezed by a
/// local search (`memory/detail/squeeze.hpp`). Up to 2048 intervals, a depth-first search alternates with the local
/// search (`memory/detail/fit.hpp`), and can also prove that no packing is lower. Both have equal work if there is a
/// limit; without one, the depth-first search has an eighth of the other's. With a limit of time or work, the component
/// is also packed on a skyline again, by random properties. The arena is never larger than after the first packing.
///
/// The search ends when the arena meets the bound, is proven the smallest or is at most `target_bytes`, and at the
/// limits of `run`; `default_work` and `further_work` say when it ends without a limit of time or work.
///
/// Heuristic, unless `optimal` is true. One thread; equal input, seed and work limit give equal offsets. Time: the
/// first packing O(n log n) for lifetimes as schedules have them; each move of the search O(n log n + the sections of
/// all blocks). Cancellation: the first packing always ends; the search polls at each packing, move and node, and
/// within moves. `on_progress` is not called. Throws `bad_argument` for an alignment below 1, a negative
/// `target_bytes`, a negative size, an empty lifetime, or sizes whose rounded sum exceeds 2^63 − 1 bytes.
[[nodiscard]] memory_plan plan_memory(std::span<const interval> intervals, const memory_plan_options& options = {});

/// \overload
///
/// For the allocations of a schedule: `offsets[i]` is the offset of `lives.allocations[i]`.
[[nodiscard]] memory_plan plan_memory(const lifetimes& lives, const memory_plan_options& options = {});

/// The answer of `fit_memory`.
enum class memory_fit_status : std::uint8_t {
  fits,        ///< the arena of the plan is within the capacity
  impossible,  ///< proven: no plan is within the capacity
  unknown      ///< a limit of `run` ended the search
};

/// A plan within a capacity, or the proof that there is none.
struct memory_fit {
  memory_fit_status status = memory_fit_status::unknown;  ///< the answer
  memory_plan plan{};  ///< the smallest arena found; above the capacity unless the status is `fits`
};

/// Gives each interval an offset in one arena of at most `capacity` bytes, or proves that this is impossible.
///
///     const memory_fit fit = fit_memory(intervals, 1 << 20, {.alignment = 64});
///     if (fit.status == memory_fit_status::fits) use(fit.plan.offsets);
///
/// `plan_memory` asks for the smallest arena; this function asks for any that is small enough, which is often much
/// quicker. The method is that of `plan_memory`. All work goes into the capacity itself, and none into arenas between
/// it and the best one found. `options.target_bytes` is ignored. Without a limit of time or work, the search ends after
/// `further_work`.
///
/// Deterministic, cancellation and errors: as for `plan_memory`. Throws `bad_argument` also for a negative capacity.
[[nodiscard]] memory_fit fit_memory(std::span<const interval> intervals, std::int64_t capacity,
                                    const memory_plan_options& options = {});

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/memory/impl/plan.hpp"
#endif
