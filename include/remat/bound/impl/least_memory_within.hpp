// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/bound/least_memory_within.hpp"

#include <algorithm>
#include <cmath>

#include "remat/bound/least_memory.hpp"
#include "remat/bound/offload.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE std::int64_t least_memory_within(const problem& p, double max_time,
                                              const least_memory_within_options& options) {
  if (std::isnan(max_time)) throw bad_argument("least_memory_within: max_time is not a number");
  constexpr std::uint32_t likely = 8;  // budgets among which a limit of time is shared
  const run_clock clock(options.run);
  const double longest = with_rounding(max_time);
  least_memory_options any_time;
  any_time.run = clock.limits(0.1);
  std::int64_t low = least_memory_bound(p, any_time).bytes;
  const std::int64_t most = std::min(p.budget(), p.graph().baseline_peak);
  if (p.graph().needed_time > longest) return p.has_budget() ? std::max(low, p.budget() + 1) : problem::unlimited;
  turnaround_analysis analysis(p);
  const auto proves = [&](std::int64_t budget, std::uint32_t chain_moments, const run_control& run) {
    if (p.link()) {
      offload_bound_options proving;
      proving.want_choice = false;
      proving.run = run;
      return offload_bound(p.with_budget(budget), proving).lower_bound > longest;
    }
    turnaround_options proving;
    proving.want_saved = false;
    proving.chain_moments = chain_moments;
    proving.run = run;
    return analysis.bound(budget, proving).lower_bound > longest;
  };
  const auto bisect = [&](std::uint32_t chain_moments, double share) {
    const run_clock part(clock.limits(share));
    std::int64_t high = most;                        // nothing is proven there yet
    bool is_first = most < p.graph().baseline_peak;  // the budget of `p` may be too small itself
    for (std::uint32_t left = options.budgets; left > 0 && low <= high && high - low > high / 1024; --left) {
      if (part.should_stop()) break;
      const std::int64_t budget = is_first ? high : low + (high - low) / 2;
      is_first = false;
      if (proves(budget, chain_moments, part.limits(1.0 / std::min(left, likely))))
        low = budget + 1;
      else
        high = budget;
    }
  };
  const bool has_chains = options.chain_moments > 0 && !p.link();
  bisect(0, has_chains ? 0.5 : 1);
  if (has_chains && low < most) bisect(options.chain_moments, 1);
  return low;
}

}  // namespace REMAT_NAMESPACE
