// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/detail/evict_with_copies.hpp"

#include "remat/bound/offload.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/method/detail/copy_floor.hpp"
#include "remat/method/detail/copy_states.hpp"
#include "remat/method/detail/copying_eviction.hpp"
#include "remat/method/detail/own_method.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE solution evict_with_copies_solver::operator()(const problem& p, const evict_options& options) const {
  if (!p.link()) return evict(p, options);
  require_valid_options(name, options);
  detail::require_known_tensors(p, options.keep);
  return detail::solve_by_own_method(
      p, name, options.run, improvement{}, {.may_copy = true}, [&](run_clock& clock, solution& best) {
        detail::copy_states states(1);
        detail::copy_placement placement(p, clock, best, name, states);
        placement.place_listed_order();
        const offload_bound_result floor =
            detail::floor_within(p, clock, detail::floor_share, detail::floor_branch_nodes(p));
        if (!detail::take_floor(p, floor, clock, best))
          detail::run_copying_eviction(p, floor, options, clock, best, placement, {});
        return clock.poll();
      });
}

}  // namespace REMAT_NAMESPACE
