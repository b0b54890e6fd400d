// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <memory>

#include "remat/bound/detail/moment_chain.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/core/run.hpp"
#include "remat/portfolio/detail/part.hpp"
#include "remat/portfolio/detail/part_setting.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/portfolio/detail/shares.hpp"

namespace REMAT_NAMESPACE::detail {

/// The bound of chains of moments, which takes longer than that of one and gains most under tight budgets. The other
/// parts are told the best chain.
[[nodiscard]] inline portfolio_part chain_bound_part(const part_setting& s) {
  const auto best = std::make_shared<turnaround_result>();
  portfolio_part part;
  part.name = "chains of moments";
  part.first_share = 0.2;
  part.run = [&s, best](const pool_view& now, run_clock& clock) {
    turnaround_options proving;
    proving.want_saved = false;
    proving.branch_nodes = s.branch_nodes;  // the segments' tensors are held whole
    proving.chain_moments = most_chain_moments;
    proving.run = clock.control();
    const turnaround_result found = s.analysis.bound(s.instance.budget(), proving);
    count_flows(found.flows, s.size(), clock);
    if (!found.chain.empty()) *best = found;
    if (best->links == nullptr) best->links = std::make_shared<const moment_chain>();  // `exact` looks for no other
    part_slice slice;
    note_turnaround(now.instance, found, slice.found);
    if (found.infeasible) slice.found.status = solve_status::infeasible;
    slice.ended = !may_be_cut_off(clock);
    return slice;
  };
  part.is_useful = [](const pool_view& now) { return !now.best.is_within(part_gaps::chains); };
  part.publish = [best](pool_view& now) {
    now.moments = best->chain;
    now.chain = best->links;
  };
  return part;
}

}  // namespace REMAT_NAMESPACE::detail
