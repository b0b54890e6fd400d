// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>

#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/solver/solution.hpp"

namespace remat::detail {

namespace solve_end {

/// Sets the status and the figures of a finished solve: the common part of both functions `conclude`.
///
/// A plan is `optimal` where its time meets `s.lower_bound`, otherwise `feasible`. A solve without a plan that is
/// neither `infeasible` nor `error` ended by a stop request or by a limit; if nothing stopped it and it has no message,
/// it gets `no_plan`. `s` is a `solution` or a `chain_solution`. Precondition: the lower bound is proven. Throws
/// `internal_error` for a plan that is faster than the bound.
template <class Solution>
void record(Solution& s, const run_clock& clock, stop_reason stopped, std::string_view no_plan) {
  s.statistics.seconds = clock.seconds();
  s.statistics.work = clock.work_done();
  if (s.plan) {
    // Bound and time add up the same times in different orders: equal up to rounding.
    if (s.time < s.lower_bound * (1 - 1e-9)) throw internal_error("a schedule takes less time than its proven bound");
    s.status = is_optimal(s.time, s.lower_bound) ? solve_status::optimal : solve_status::feasible;
  } else if (s.status != solve_status::infeasible && s.status != solve_status::error) {
    s.status = stopped == stop_reason::cancelled ? solve_status::cancelled : solve_status::timeout;
    if (s.message.empty() && stopped == stop_reason::none) s.message = no_plan;
  }
}

}  // namespace solve_end

}  // namespace remat::detail
