// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <tuple>

#include "remat/bound/turnaround.hpp"
#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// Options of `exact`.
struct exact_options {
  /// \name Settings (`records` says what they are)
  /// @{
  std::uint64_t max_states = 2'000'000;
  bool start_from_heuristic = true;
  /// @}
  run_control run{};  ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() {
    using o = exact_options;
    return std::tuple{option("max_states", &o::max_states,
                             "The search keeps at most so many states; each takes about 100 bytes and its bits.")
                          .from(1)
                          .to(4'294'967'294)
                          .fast(200'000),
                      option("start_from_heuristic", &o::start_from_heuristic,
                             "Run evict first, and drop states that cannot beat its schedule.")};
  }
};

/// The least time of any schedule within the budget, with the proof. Every order of first runs is considered, and every
/// operation that may run again can.
///
/// Method: A* \cite hart1968astar backwards, from the end of the training step, over computes alone. A state is the set
/// of *open writes*, those that the rest of the schedule needs and that are still to be made, and of effects that have
/// still to run. Placing an operation before a state closes its own writes and opens the writes of its inputs. A tensor
/// without an open write is not allocated, so no frees are branched on, and an operation whose outputs nobody reads is
/// never run. A state does not say which operations have run: an operation must still run if an open write depends on
/// it.
///
/// Cost of a state: the time of the operations placed. Lower bound of the part before it, the larger of two: the time
/// of all operations that the open writes depend on, once each; and the turnaround bound of the problem whose outputs
/// are the open tensors (`moment_cut`: one or two flows), at a moment alone or at the last one of a chain of moments,
/// whose earlier segments are the same for all states. States of one closure share the moments and prices.
///
/// These rules drop moves and keep an optimum (proofs: docs/bounds.md, section 8):
///  1. only an operation with an open write, or with an effect that has not been placed, is placed;
///  2. a contribution is not placed twice for one allocation, and no read between contributions: both are illegal;
///  3. an operation that must run once is not placed while an operation before the state depends on it;
///  4. an operation that nothing before can depend on, and that opens no more bytes than it closes, is placed at once,
///     and no other move is tried;
///  5. a state whose cost and bound reach the incumbent's time is dropped.
///
/// Rule 6: if two moves may come in either order, only one order is searched. Further runs come before first runs, and
/// the latest operation comes first. For this the search keeps, for each state, the operations that *sleep*, which wait
/// for a move that needs them. A state that is reached by several ways of equal time is searched again if fewer
/// operations sleep on one of them. Rule 7: a state is dropped if another one of its closure needs less and has taken
/// less time.
///
/// Graphs of ten operations take less than a millisecond; the size of the graphs that can be solved depends on the
/// budget. Memory: about 100 bytes and (writes + effects + operations) bits a state, and operations² / 2 bits. When
/// `max_states`, a limit of work (`work_of::visit` for each operation and expanded state) or time, or a
/// stop ends the search, it returns the incumbent (`evict`) and the least bound of the open states. `evict`, the
/// turnaround bound and the search for a chain get a quarter of what is left of the limits each; the bounds count no
/// work. Deterministic but for a deadline. Throws `bad_argument` for a `max_states` of 0 or above 2³² − 2, and for a
/// problem with a link. Cancellation: polled at every state
/// and in every flow.
///
/// `solution::by`: "exact", or "exact/evict/…" for a schedule of `evict`.
///
///     solution s = exact(p.with_budget(budget), {.run = {.time_limit = std::chrono::seconds(5)}});
struct exact_solver {
  using options_type = exact_options;                     ///< The options of this solver.
  static constexpr std::string_view name = "exact";       ///< The solver's name in tables and progress reports.
  static constexpr std::uint32_t max_operations = 2'000;  ///< larger graphs get the bound and `evict` alone

  /// Returns the best schedule found within the budget of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const exact_options& options = {}) const;
};
/// The solver as a function object: `exact(p, options)`.
inline constexpr exact_solver exact{};

namespace detail {

/// The demands of a portfolio on the exact search, beside its options.
struct exact_goal {
  /// If given, only schedules that take less time are looked for, and the search proves no bound above it. At least 0.
  std::optional<double> faster_than{};
  /// The search gives up when twice as many states close less than this part of the gap; 0: never.
  double patience = 0;
  /// A chain of moments for the same graph and budget (`turnaround_result::links`); null: it is searched for.
  std::shared_ptr<const moment_chain> chain{};
};

/// `exact` for a goal.
[[nodiscard]] solution search_exactly(const problem& p, const exact_options& options, const exact_goal& goal);

}  // namespace detail

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/impl/exact.hpp"
#endif
