// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <tuple>

#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// Options of `rockmate`.
struct rockmate_options {
  /// \name Settings (`records` says what they are)
  /// @{
  std::uint32_t slots = 500;
  std::uint32_t max_stages = 100;
  std::uint32_t max_block = 24;
  std::uint32_t ways_per_stage = 12;
  std::uint32_t peaks = 1;
  std::uint64_t moves = 300;
  /// A chain that would exceed it is given no ways. One unit takes some 15 µs.
  std::uint64_t block_effort = 36'000;
  std::int64_t table_bytes = std::int64_t{4} << 30;
  std::uint32_t finer_chains = 16;
  /// Rounds of retention of the best schedule of each of the best `finer_chains` chains, which is then no longer
  /// memory-persistent.
  std::uint32_t retain_rounds = 0;
  /// @}
  /// Ways of blocks that were found before, for other budgets of the same training step. Null: for this solve alone.
  std::shared_ptr<way_cache> cache{};
  /// The improvement after the own method and at least 3 rounds of retention: none, or `by_refinement`
  /// (remat/method/refined.hpp).
  improvement improve{};
  run_control run{};  ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() {
    using o = rockmate_options;
    return std::tuple{
        option("slots", &o::slots, "Memory is counted in so many slots.").from(1).to(1 << 24).fast(200),
        option("max_stages", &o::max_stages, "A chain has at most so many stages.").from(1).fast(50),
        option("max_block", &o::max_block, "Blocks of at most so many forward operations are given ways.").fast(12),
        option("ways_per_stage", &o::ways_per_stage, "A block has at most so many ways.").from(2),
        option("peaks", &o::peaks, "Ways are found for so many budgets of the peak below the one that does not bind."),
        option("moves", &o::moves, "The search within each budget of a block makes at most so many moves.").fast(100),
        option("block_effort", &o::block_effort,
               "The sum of the squared operations of distinct blocks is at most this.")
            .fast(9'000),
        option("table_bytes", &o::table_bytes,
               "The largest table has at most so many bytes; a chain with a larger one is left out.")
            .from(0),
        option("finer_chains", &o::finer_chains, "So many of the best chains are solved again with more slots.")
            .fast(4),
        option("retain_rounds", &o::retain_rounds, "So many rounds spend the memory that a schedule leaves.")};
  }
};

/// Rockmate \cite zhao2023rockmate: cuts the training step into a chain of blocks, finds several ways to run the
/// forward and the backward of each block, and combines them by the dynamic program of `rotor`.
///
/// 1. Chains. The forward part is cut at all levels of `cut_levels`, at every second, third … cut of a level, and into
///    segments of about equal bytes. Fine chains come first, since their blocks are quick to solve.
/// 2. Ways. Blocks of a chain that are equal up to renaming and measured times are solved once. The ways of a
///    block are the fastest ways to run it within a grid of peak and save budgets (`find_ways`), by bound, eviction,
///    refinement and, for small blocks, exact search; the paper uses an integer program. They do not depend on the
///    budget of the step: with a `cache`, further budgets cost next to nothing.
/// 3. The dynamic program, with all ways of all blocks (`staged_ways`), for all budgets at once. The schedules are
///    expanded to operations, freed early and checked within the true budget, fastest first. The best chains are solved
///    again with four times as many slots.
/// 4. With `retain_rounds`, `retain` spends the memory that the best schedules of several chains leave; with `improve`,
///    `refined` starts from what that gives.
///
/// With a link, this method solves several graphs without one: the problem without copies; graphs in which each tensor
/// that the choice of `offload_bound` has on the host is split in two, and a copy back is an operation that takes what
/// the bound charges for it, so that ways of blocks copy, too; and the problem without copies for larger budgets. The
/// copies of each sequence of computes are then placed, and the engines simulated. With `improve`, simulated annealing
/// of recomputation and copies together follows, as in `offload`. The figures are those of the graph of the answer.
///
/// The optimum of step 3 is over memory-persistent schedules, in the model, in which each block runs by one of its
/// ways or by a forward that keeps nothing. For the graph it is a heuristic. The baseline is the answer if it fits.
/// Each chain is also solved without ways, so ways never make the answer before step 4 worse.
///
/// The blocks take time within `block_effort`; each chain takes O(L³ · slots + L² · slots · ways) time at worst. The
/// answer is the same for any number of threads, and for a limit on work. Work: the rows of the tables, the
/// operations of expanded schedules, and that of the solvers of blocks, which share what is left among all budgets of
/// the blocks; a chain is given no ways if less is left than `moves` for each block that no chain before had. Polls
/// before each problem of a block, after each row, before each schedule, and within `retain`. Throws `bad_argument` for
/// options out of range.
///
/// `solution::by`: "rockmate" for a table's schedule, "rockmate/no_remat"; with `retain_rounds` or `improve`
/// "rockmate/retain" if memory was left to spend, and with `improve` "rockmate/refined/…". With a link "rockmate",
/// "rockmate/listed" for the listed order with copies, and with `improve` "rockmate/copies".
///
/// Figures (`solve_statistics::own`): `chains`, and of these `chains_with_ways`; `chains_refused`, given no ways
/// for `block_effort` or for lack of work; `tables_refused`, left out for `table_bytes`; `blocks` of the chains with
/// ways, `distinct_blocks`, `solves` (budgets of blocks), `ways_found` and of these `ways_kept`; of the chain
/// of the best table's schedule `with_ways`, `stages`, `distinct_stages`, `stage_ways` (of all its stages),
/// `slots`, `table_time` (what the table says) beside `flat_time` (of the expanded schedule), `table_bytes` (what the
/// table grants) beside `flat_peak_bytes`. With `improve` also `own_time`, `own_peak_bytes`
/// and `own_by`: what the method found by itself.
struct rockmate_solver {
  using options_type = rockmate_options;                ///< The options of this solver.
  static constexpr std::string_view name = "rockmate";  ///< The solver's name in tables and progress reports.

  /// Returns the best schedule found within the budget of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const rockmate_options& options = {}) const;
};
/// The solver as a function object: `rockmate(p, options)`.
inline constexpr rockmate_solver rockmate{};

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/rockmate/impl/rockmate.hpp"
#endif
