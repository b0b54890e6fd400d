// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/rotor.hpp"

#include <cmath>

#include "remat/core/detail/linkage.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/detail/retain_all.hpp"
#include "remat/method/rotor/impl/on_chain.hpp"
#include "remat/method/rotor/impl/on_graph.hpp"
#include "remat/solver/detail/run_to_end.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE solution rotor_solver::operator()(const problem& p, const rotor_options& options) const {
  require_valid_options(name, options);
  return detail::solve_by_own_method(p, name, options.run, options.improve, {}, [&](run_clock& clock, solution& best) {
    constexpr std::size_t all = std::numeric_limits<std::size_t>::max(), max_starts = 8;
    detail::on_graph::graph_search search(p, options, clock, best);
    detail::method_end end{search.run(), {}};
    search.record(best.statistics.own);
    detail::retain_all(p, search.best_schedules(all), options.retain_rounds, bool{options.improve}, clock, best, name);
    if (options.improve) end.starts = search.best_schedules(max_starts);
    return end;
  });
}

REMAT_INLINE chain_solution rotor_solver::operator()(const chain_problem& p, const rotor_options& options) const {
  require_valid_options(name, options);
  run_clock clock(options.run, name);
  chain_solution best;
  best.lower_bound = p.stages().least_time();
  clock.watch(best.time, best.lower_bound);
  detail::run_to_end(p, best, clock, [&] {
    const bool fits = accept(p, best, store_all_steps(p.stages()));
    if (fits && best.time <= p.stages().least_time())
      best.persistent_optimum = true;
    else if (largest_working_set(p) <= p.budget())
      return detail::on_chain::chain_search(p, options, clock, best).run();
    return stop_reason::none;
  });
  return best;
}

REMAT_INLINE std::vector<chain_step> chain_frontier::steps(std::size_t k) const {
  return exact_ ? table_->bytes->steps(at_[k]) : table_->slots->steps(static_cast<std::uint32_t>(at_[k]));
}

REMAT_INLINE chain_frontier rotor_frontier(const chain& c, const rotor_options& options, double max_time) {
  require_valid_options(rotor_solver::name, options);
  if (std::isnan(max_time)) throw bad_argument("max_time is not a number");
  return detail::on_chain::frontier_solve(c, options, max_time).run();
}

REMAT_INLINE std::int64_t least_budget(const chain& c) {
  const detail::sized_chain timeless = detail::without_times(detail::size_chain(c, false));
  const detail::excess_bound bound(timeless);
  detail::breakpoint_table table(timeless, store_all_room(timeless), bound);
  run_clock clock({});
  table.fill(clock, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::uint64_t>::max());
  return table.frontier().front().memory + c.input_bytes();
}

}  // namespace REMAT_NAMESPACE
