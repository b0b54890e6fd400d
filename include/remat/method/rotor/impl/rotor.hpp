// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/rotor.hpp"

#include <cstddef>
#include <limits>
#include <string>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/rotor/impl/on_chain.hpp"
#include "remat/method/rotor/impl/on_graph.hpp"
#include "remat/solver/chain_solution.hpp"

namespace remat {

REMAT_INLINE solution rotor_solver::operator()(const problem& p, const rotor_options& options) const {
  require_valid_options(name, options);
  return detail::solve_by_own_method(
      p, name, options.run, options.improve, true, [&](run_clock& clock, solution& best) {
        constexpr std::size_t all = std::numeric_limits<std::size_t>::max(), most_starts = 8;
        detail::on_graph::graph_search search(p, options, clock, best);
        detail::method_end end{search.run(), {}};
        search.record(best.statistics.own);
        if (options.improve) detail::record_own_method(best);
        const std::uint32_t rounds = detail::retain_rounds_of(options.retain_rounds, options.improve);
        if (rounds > 0) detail::retain_all(p, search.best_schedules(all), rounds, clock, best, name);
        if (options.improve) end.starts = search.best_schedules(most_starts);
        return end;
      });
}

REMAT_INLINE chain_solution rotor_solver::operator()(const chain_problem& p, const rotor_options& options) const {
  require_valid_options(name, options);
  run_clock clock(options.run, name);
  chain_solution best;
  best.lower_bound = p.stages().least_time();
  clock.watch(best.time, best.lower_bound);
  stop_reason stopped = stop_reason::none;
  const bool fits = accept(p, best, store_all_steps(p.stages()));
  if (fits && best.time <= p.stages().least_time())
    best.persistent_optimum = true;
  else if (largest_working_set(p) <= p.budget())
    stopped = detail::on_chain::chain_search(p, options, clock, best).run();
  conclude(p, best, clock, stopped);
  return best;
}

}  // namespace remat
