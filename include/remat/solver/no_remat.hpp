// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/chain/chain_problem.hpp"
#include "remat/core/control.hpp"
#include "remat/order/least_peak.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/chain_solution.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

/// Whether a problem is settled without a search: the listed order fits, so it is the answer, and optimal; or some
/// operation, or the end of the step, needs more than the budget by itself. O(reads and writes) time.
inline bool settled_by_listed_order(const problem& p, solution& best) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t o = 0; o < p.graph().num_operations; ++o)
    if (p.graph().needed[o]) order.push_back(o);
  if (accept(p, best, schedule_computes(p.graph(), order))) {
    best.lower_bound = p.graph().needed_time;
    best.proven = true;
    return true;
  }
  const least_memory_result least = largest_working_set(p);
  if (least.bytes <= p.budget()) return false;
  best.status = solve_status::infeasible;
  best.lower_bound = std::numeric_limits<double>::infinity();
  best.proven = true;
  best.obstacle = least.operation;
  best.message = least.message();
  return true;
}

struct no_remat_options {
  bool reorder = false;                              ///< search for the order of least peak; otherwise the listed order
  std::uint64_t moves = least_peak_options{}.moves;  ///< of the local search
  run_control run{};
};

/// The baseline: every needed operation once, in the listed order, each tensor freed right after its last use; with
/// `reorder`, in the order of least peak that can be found.
///
/// Its time is least (`optimal`) wherever it fits the budget. `infeasible` where the budget is below what some
/// operation or the end of the step needs by itself; otherwise a budget that is not met proves nothing. O(reads and
/// writes) time; with `reorder` that of `least_peak_order`. Cancellation: the listed order does not poll; see
/// `least_peak_order` for the search.
struct no_remat_solver {
  using options_type = no_remat_options;
  static constexpr std::string_view name = "no_remat";

  [[nodiscard]] solution operator()(const problem& p, const no_remat_options& options = {}) const {
    const run_clock clock(options.run);
    solution best;
    stop_reason stopped = stop_reason::none;
    const bool settled = settled_by_listed_order(p, best);
    if (options.reorder && best.status != solve_status::infeasible) {
      least_peak_options search;
      search.moves = options.moves;
      search.run = options.run;
      const least_peak_order_result found = least_peak_order(p, search);
      if (accept(p, best, schedule_computes(p.graph(), found.operations))) {
        best.lower_bound = p.graph().needed_time;
        best.proven = true;
      }
      if (!best.plan)
        best.message = "the best order found without recomputation needs " + std::to_string(found.peak_bytes) +
                       " bytes" + (found.proven ? ", and no order needs less" : "");
      if (!found.proven) stopped = clock.poll();
    } else if (!settled) {
      const solution free = (*this)(p.with_budget(problem::unlimited));
      best.message = "the listed order needs " + std::to_string(free.peak_bytes) + " bytes";
    }
    conclude(p, best, clock, stopped);
    return best;
  }

  /// On a chain: every forward with everything kept, then every backward.
  [[nodiscard]] chain_solution operator()(const chain_problem& p, const no_remat_options& options = {}) const {
    const run_clock clock(options.run);
    chain_solution best;
    accept(p, best, store_all_steps(p.stages()));
    conclude(p, best, clock, stop_reason::none);
    return best;
  }
};
inline constexpr no_remat_solver no_remat{};

}  // namespace remat
