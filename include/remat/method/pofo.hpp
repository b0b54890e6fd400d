// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// Options of `pofo`.
struct pofo_options {
  /// \name Settings (`records` says what they are)
  /// @{
  std::uint32_t slots = 500;
  std::uint32_t max_stages = 150;
  std::uint32_t states = 500;
  std::uint32_t candidates = 12;
  std::int64_t table_bytes = std::int64_t{4} << 30;
  double gap = default_gap;
  /// @}
  run_control run{};  ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() {
    using o = pofo_options;
    return std::tuple{
        option("slots", &o::slots, "Where stages are recomputed, memory is counted in so many slots.")
            .from(1)
            .to(1 << 24)
            .fast(100),
        option("max_stages", &o::max_stages, "A graph is cut into chains of at most so many stages.").from(1).fast(50),
        option("states", &o::states, "Before each stage, so many states of copies and memory are told apart.")
            .from(1)
            .fast(100),
        option("candidates", &o::candidates, "So many of the plans of each table have their copies placed.")
            .from(1)
            .fast(4),
        option("table_bytes", &o::table_bytes,
               "The largest table has at most so many bytes; a chain with a larger one is left out.")
            .from(0),
        option("gap", &o::gap, "End with a time of at most (1 + gap) × the proven bound.").from(0).fast(0.01)};
  }
};

/// Recomputation and copies to the host on a chain, decided together by dynamic programming \cite beaumont2021pofo.
///
/// Each stage of the chain is kept whole, or only its input is kept and it runs again for its backward; what is kept
/// stays on the device or goes to the host. The states of the program hold the bytes that are on their way to the host
/// and the bytes that must be back early (`detail::backlog::backlog_program`). Stages that run again do so by the
/// fastest schedule without copies, from Rotor's table.
///
/// A graph is cut into chains as `rotor` does it. On each chain, the program plans for the budget and for somewhat
/// larger ones, with the link's speed and with a somewhat higher one, because its counts are cautious: a tensor may be
/// freed before the end of its stage, and copies go on while stages run again. Further plans come from the table alone:
/// its schedules for larger budgets, where whatever does not fit lies on the host. The plans become operations, the
/// copies are placed
/// (`detail::copy_planner`), and the exact checker says what fits and how long it takes.
///
/// `rotor` runs first. So the answer is never slower than that of `rotor` with the same options, if `rotor` ends within
/// two fifths of the limits. A problem without a link is left to `rotor`. The lower bound is that of `offload_bound`.
/// Heuristic: it may find no schedule under a tight budget, which proves nothing.
///
/// Unlike the paper, sizes in the states are not rounded: states of nearly equal sizes are one, the fastest of them,
/// and there are at most `states` before each stage. The paper's table has O(slots³) of them. Recomputation beside
/// copies that come back is charged all their bytes from its beginning. After the plan, copies are placed tensor by
/// tensor, by the simulation of the engines.
///
/// Without limits, chains of many stages go first; under limits those of few stages, which are solved at once.
///
/// O(L² · states) time for a chain of L stages beside the table of `rotor`. Deterministic for a work limit, with any
/// number of threads. Work: that of `rotor` and its tables, `work_of::visit` for each state and for each compute whose
/// copies are placed. Polls as `rotor`, after a thousand states, and before each placing. Throws `bad_argument` for
/// options out of range.
///
/// `solution::by`: "pofo/rotor" for a schedule without copies, "pofo/backlog" for a plan of the program, "pofo/table"
/// for a schedule of the table whose rest lies on the host.
///
/// Figures (`solve_statistics::own`): `chains` solved, `plans` whose copies were placed, and of the best schedule
/// `stages`, `plan_time` (as the program counts it) and `rotor_time` (of `rotor` alone).
///
///     const problem p = problem(chain_graph(c), measured_cost{}, budget).with_link({.out = 25e9, .in = 25e9});
///     const solution s = pofo(p);
struct pofo_solver {
  using options_type = pofo_options;                ///< The options of this solver.
  static constexpr std::string_view name = "pofo";  ///< The solver's name in tables and progress reports.

  /// Returns the best schedule found within both budgets of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const pofo_options& options = {}) const;
};
/// The solver as a function object: `pofo(p, options)`.
inline constexpr pofo_solver pofo{};

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/pofo/impl/pofo.hpp"
#endif
