// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "remat/core/run.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/retention.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// Spends the memory that each of `plans` leaves free in `rounds` rounds (`retain`), and offers the results to `best`
/// as the part "SOLVER/retain". Polls before each schedule. If the schedules are to be improved afterwards, there are
/// at least 3 rounds, and what the method has found before them is noted (`record_own_method`).
inline void retain_all(const problem& p, std::span<const schedule> plans, std::uint32_t rounds, bool improves,
                       run_clock& clock, solution& best, std::string_view solver) {
  if (improves) {
    record_own_method(best);
    rounds = std::max(rounds, 3U);
  }
  if (rounds == 0) return;
  for (const schedule& plan : plans) {
    if (clock.should_stop()) return;
    accept(p, best, retain(p, plan, clock, rounds), by_part(solver, "retain"));
  }
}

}  // namespace REMAT_NAMESPACE::detail
