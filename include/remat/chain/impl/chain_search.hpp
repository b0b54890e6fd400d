// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/chain/detail/chain_search.hpp"

#include <algorithm>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"

namespace remat::detail {

REMAT_INLINE chain_search_result search_chain(const problem& p, chain_program& program, double best_time,
                                              run_clock& clock, const chain_search_options& options) {
  chain_search_result out;
  out.flat_time = program.flat_time();
  const double needed = p.graph().needed_time;
  const auto allowed = [&] {
    const double best = std::min(best_time, out.time);
    return best < std::numeric_limits<double>::infinity() ? (best - needed) * options.allowance
                                                          : std::numeric_limits<double>::max();
  };
  chain_program_options filling;
  filling.slots = options.slots;
  filling.table_bytes = options.table_bytes;
  filling.most_lost = allowed();
  filling.threads = clock.control().threads;
  const double most = static_cast<double>(p.budget()) * options.most_memory;
  if (most < 9e18) filling.most_bytes = static_cast<std::int64_t>(most);
  const fill_outcome end = program.fill(clock, filling);
  out.too_large = end == fill_outcome::too_large;
  if (end != fill_outcome::filled) return out;
  out.table_time = out.flat_time + program.lost_within(p.budget());
  program.visit([&](const chain_program::entry& e) -> std::int64_t {
    if (e.lost > allowed() || clock.should_stop()) return -1;
    clock.work();
    ++out.tried;
    std::int64_t over = std::numeric_limits<std::int64_t>::max();
    for (const bool whole : {true, false}) {
      schedule plan = schedule_computes(p, program.expand(e.steps, whole));
      const check_report r = check(p, plan);
      if (r.what == violation::over_budget) over = std::min(over, r.peak_bytes - p.budget());
      if (!r.valid()) continue;
      over = 0;
      if (r.time >= out.time) continue;
      out.time = r.time;
      out.plan = std::move(plan);
    }
    return over == std::numeric_limits<std::int64_t>::max() ? 0 : over / 2;
  });
  return out;
}

}  // namespace remat::detail
