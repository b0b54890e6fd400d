// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include "remat/core/option.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// Options of `refined`.
struct refined_options {
  /// Further schedules to start from. Those over the budget are ignored.
  std::vector<schedule> starts{};
  /// \name Settings (`records` says what they are)
  /// @{
  std::uint32_t branch_nodes = 200;
  std::uint32_t searches = 8;
  std::uint32_t splits = 2;
  double gap = default_gap;
  /// @}
  run_control run{};  ///< limits, seed, threads, progress

  /// The records of the settings.
  static constexpr auto records() {
    using o = refined_options;
    return std::tuple{
        option("branch_nodes", &o::branch_nodes,
               "The bound searches at most so many nodes: `turnaround_options::branch_nodes`.")
            .fast(20),
        option("searches", &o::searches, "So many independent searches run: `refine_options::searches`.").fast(2),
        option(
            "splits", &o::splits,
            "If the schedule is far from the bound, the step, and then each part, is split at a moment so many times.")
            .fast(1),
        option("gap", &o::gap, "End with a time of at most (1 + gap) × the proven bound.").from(0).fast(0.01)};
  }
};

/// A proven bound, eviction, refinement.
///
/// 1. The turnaround bound, with branch and bound: a fifth of the time.
/// 2. `exact`, for graphs of at most 16 operations, if it ends within 50,000 states.
/// 3. `evict`, plain; then with a preference for the tensors that the bound's cuts save, for the budget and for 95, 90
///    and 80 % of it; then for choices that fill the memory at the bound's moment, or a part of it (at most a dozen).
///    On graphs of more than 5,000 operations such choices come first, and often replace the others.
/// 4. `refine` from all schedules found, if there is a limit: 15 % of it.
/// 5. Then these parts race, in slices of what is left of the limits, while the schedule is far enough above the bound:
///    the bound of several moments (0.05 %), and of several moments together on at most 2,000 operations (0.1 to 10 %);
///    `exact`, for graphs of at most 512 operations (0.1 %; it gives up if it closes little of the gap); a split of the
///    step at the moments that give the bound, the last one first, where a minimum cut says what to hold and each part
///    is solved by these steps, but for the bound of moments together (0.5 %, once 0.1 %; `splits` says how often);
///    `evict` under random preferences (0.5 %); and `refine` from all schedules found. The next slice goes to the part
///    that has had least for its weight, which grows when it closes some of the gap.
/// 6. `refine` once more, with the last two fifths of the limits.
///
/// The first steps get shares of what is left of the limits (`run_clock::part`). The solve ends as soon as a schedule
/// is within `gap` of the bound; refinement looks at that after each round. `lower_bound` is proven; a schedule that
/// meets it is `optimal`; others are heuristic. Without a limit of time or work, the race goes in rounds:
/// each takes as much work as all before it together and 3,200,000 units more, and one that closes less than a tenth of
/// the gap is the last. Its work is the sum of its parts'. For a seed and a work limit the answer is
/// the same for any number of threads. Throws `bad_argument` for an illegal schedule to start from, and a `gap` that is
/// NaN or negative. Cancellation: as `turnaround_bound`, `evict`, `exact` and `refine`. Progress comes in the name of
/// `refined`, the part as the stage.
///
/// With a link, the parts are others: the listed order with copies, the bound `offload_bound`, eviction that drops or
/// copies (`evict`), the steps above for recomputation alone unless the schedule is within 0.3 % of the bound, and then
/// simulated annealing of recomputation and copies together, as in `offload`. Of the settings, `gap` counts, and the
/// others for recomputation alone. Copies free memory for `starts` over the budget.
///
/// `solution::by`: "refined/search" for annealing, "refined/split" for the schedules of two parts, "refined/start",
/// "refined/evict/…", "refined/exact/…"; with a link "refined/listed", "refined/evict", "refined/fill",
/// "refined/alone" and "refined/copies".
struct refined_solver {
  using options_type = refined_options;                ///< The options of this solver.
  static constexpr std::string_view name = "refined";  ///< The solver's name in tables and progress reports.

  /// Returns the best schedule found within the budget of `p`, if any, and a proven lower bound on the time.
  [[nodiscard]] solution operator()(const problem& p, const refined_options& options = {}) const;
};
/// The solver as a function object: `refined(p, options)`.
inline constexpr refined_solver refined{};

namespace detail {
stop_reason improve_by_refinement(const problem& p, solution& best, std::vector<schedule> starts, run_clock& clock,
                                  std::string_view solver);
}  // namespace detail

/// The option `improve` of a named solver: `refined`, which evicts and refines, from the solver's best schedule and the
/// others that it hands over, with what is left of the limits. A better schedule is that of the part
/// "SOLVER/refined/…" (`solution::by`).
inline constexpr improvement by_refinement{detail::improve_by_refinement};

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/impl/refined.hpp"
#endif
