// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "remat/bound/offload.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// Nodes of `offload_bound_options::branch_nodes` for the bound of a solve: none on large graphs, where they take long.
[[nodiscard]] inline std::uint32_t floor_branch_nodes(const problem& p) noexcept {
  return p.graph().num_operations > 2000 ? 0 : 100;
}

/// The share of the limits of a solve that its bound on schedules with copies gets.
inline constexpr double floor_share = 0.15;

/// The bound on schedules with copies, within `share` of what is left of the limits.
[[nodiscard]] inline offload_bound_result floor_within(const problem& p, const run_clock& clock, double share,
                                                       std::uint32_t branch_nodes, bool want_choice = true) {
  offload_bound_options proving;
  proving.want_choice = want_choice;
  proving.branch_nodes = branch_nodes;
  proving.run = clock.limits(share);
  return offload_bound(p, proving);
}

/// The problem with a part of its budget and a slower link. Copies never hide completely, so the bound's choice for it
/// may serve better.
[[nodiscard]] inline problem harder(const problem& p, double room, double speed) {
  host_link slower = *p.link();
  slower.out *= speed;
  slower.in *= speed;
  return p.with_budget(static_cast<std::int64_t>(room * static_cast<double>(p.budget())))
      .with_link(slower, p.host_budget());
}

/// Takes the bound on schedules with copies into the answer of a solve. Returns true if it proves that nothing fits.
inline bool take_floor(const problem& p, const offload_bound_result& floor, run_clock& clock, solution& best) {
  best.lower_bound =
      std::max({best.lower_bound, floor.lower_bound, p.graph().needed_time, p.known_bound().value_or(0)});
  best.proven = true;
  if (floor.infeasible) {
    best.status = solve_status::infeasible;
    best.message = floor.least_memory.message(p.operation_name(floor.least_memory.operation));
    best.obstacle = floor.least_memory.operation;
  }
  clock.watch(best.time, best.lower_bound);
  return floor.infeasible;
}

}  // namespace REMAT_NAMESPACE::detail
