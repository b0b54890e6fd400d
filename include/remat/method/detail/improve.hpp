// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace remat::detail {

/// The part of the limits that a solver's own method gets where its schedule is to be improved (`improve`); less where
/// the method ends by itself.
inline constexpr double share_of_own_method = 0.5;

/// The limits of a solver's own method within those of `clock`: `share_of_own_method` of what is left where its
/// schedule is to be improved, else all. Progress goes through `clock`, which must outlive them and knows the limits of
/// the whole solve.
[[nodiscard]] run_control limits_of_own_method(run_clock& clock, bool is_improved);

/// Notes in `best.statistics.own` what a solver's own method found, before others help: `own_time`, `own_peak_bytes`
/// and `own_by`, of the schedule that `best` holds. Nothing where it holds none, or where that has been noted before.
void record_own_method(solution& best);

/// Runs the last part of a solver with the option `improve`, after its own method: `refined`, which evicts and refines,
/// starts from `starts` and from the schedule of `best`, with what is left of the limits of `clock`. Its work counts
/// there. Polls before it begins, and as `refined` does.
///
/// Notes first what the own method found (`record_own_method`). Does no more where `best` is proven to be optimal or
/// the budget to be infeasible. A better schedule is that of the part "SOLVER/refined/…" (`solution::by`). `starts` are
/// legal schedules; those over the budget are ignored. Returns why the solve stopped early.
stop_reason improve(const problem& p, solution& best, std::vector<schedule> starts, run_clock& clock,
                    std::string_view solver);

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/impl/improve.hpp"
#endif
