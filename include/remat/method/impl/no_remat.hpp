// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/no_remat.hpp"

#include <string>

#include "remat/bound/least_memory.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/refine/detail/least_peak.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/detail/run_to_end.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE solution no_remat_solver::operator()(const problem& p, const no_remat_options& options) const {
  require_valid_options(name, options);
  run_clock clock(options.run, name);
  solution best;
  detail::run_to_end(p, best, clock, [&] {
    stop_reason stopped = stop_reason::none;
    const bool settled = settled_by_listed_order(p, best, name);
    if (options.reorder && best.status != solve_status::infeasible) {
      detail::least_peak_options search;
      search.moves = options.moves;
      search.run = clock.control();
      const detail::least_peak_order_result found = detail::least_peak_order(p, search);
      clock.work(found.work);
      if (accept(p, best, schedule_computes(p.graph(), found.operations), by_part(name, "reorder"))) {
        best.lower_bound = p.graph().needed_time;
        best.proven = true;
      }
      if (!best.plan)
        best.message = "the best order found without recomputation needs " +
                       detail::count_of(found.peak_bytes, "byte") + (found.proven ? ", and no order needs less" : "");
      if (!found.proven) stopped = clock.poll();
    } else if (!settled) {
      const solution unlimited = (*this)(p.with_budget(problem::unlimited));
      best.message = "the listed order needs " + detail::count_of(unlimited.peak_bytes, "byte");
    }
    return stopped;
  });
  return best;
}

REMAT_INLINE chain_solution no_remat_solver::operator()(const chain_problem& p, const no_remat_options& options) const {
  require_valid_options(name, options);
  const run_clock clock(options.run, name);
  chain_solution best;
  detail::run_to_end(p, best, clock, [&] {
    accept(p, best, store_all_steps(p.stages()));
    return stop_reason::none;
  });
  return best;
}

}  // namespace REMAT_NAMESPACE
