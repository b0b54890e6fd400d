// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/offload.hpp"

#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/method/detail/copy_annealing.hpp"
#include "remat/method/detail/copy_states.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/impl/offload_parts.hpp"
#include "remat/method/refined.hpp"
#include "remat/portfolio/detail/copy_parts.hpp"
#include "remat/portfolio/detail/driver.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/refine/detail/annealing.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE piece_kind offload_pieces() { return detail::annealing_population<detail::copy_searches>::pieces(); }

REMAT_INLINE solution offload_solver::operator()(const problem& p, const offload_options& options) const {
  require_valid_options(name, options);
  detail::require_legal_starts(p, options.starts, name);
  detail::pool known(p);
  detail::solve_by_own_method(
      p, known.answer(), name, options.run, improvement{}, {.may_copy = true}, [&](run_clock& clock, solution& best) {
        if (!p.link()) return detail::solve_without_link(p, name, clock, best, refined, {.starts = options.starts});
        detail::copy_setting setting{p, name, options.gap, detail::copy_states(options.refined_candidates),
                                     options.starts};
        detail::driver turns(known, options.gap);
        detail::offload_solve::add_parts(turns, setting, {options.budgets, options.refined_candidates});
        return turns.run_in_turn(clock);
      });
  return std::move(known.answer());
}

}  // namespace REMAT_NAMESPACE
