// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/solver/chain_solution.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/solver/detail/solve_end.hpp"

namespace remat {

REMAT_INLINE bool accept(const chain_problem& p, chain_solution& best, std::vector<chain_step> plan) {
  const chain_report report = simulate(p, plan);
  if (!report.legal) throw internal_error("a solver made an invalid schedule of a chain: " + report.message);
  if (report.peak_bytes > p.budget()) return false;
  if (best.plan && (report.time > best.time || (report.time == best.time && report.peak_bytes >= best.peak_bytes)))
    return false;
  best.peak_bytes = report.peak_bytes;
  best.time = report.time;
  best.statistics.computes = plan.size();
  best.statistics.recomputes = report.forwards - p.stages().length();
  best.plan = std::move(plan);
  best.status = solve_status::feasible;
  return true;
}

REMAT_INLINE std::int64_t largest_working_set(const chain_problem& p) {
  const chain& c = p.stages();
  std::int64_t most = c.input_bytes() + c.activation_bytes(c.length());
  for (std::size_t i = 1; i <= c.length(); ++i) {
    const chain_stage& s = c.stage(i);
    const std::int64_t input = c.activation_bytes(i - 1);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::size_t k = 0; k <= s.options.size(); ++k) {
      const chain_option o = s.option(k);
      least = std::min(least, o.saved_bytes + std::max(o.forward_overhead_bytes, input + o.backward_overhead_bytes));
    }
    most = std::max(most, c.input_bytes() + (i > 1 ? input : 0) + least);
  }
  return most;
}

REMAT_INLINE bool prove(const chain_problem& p, chain_solution& s, const run_control&) {
  if (!s.proven) {
    s.proven = true;
    s.lower_bound = std::max(s.lower_bound, p.stages().least_time());
    if (const std::int64_t least = largest_working_set(p); least > p.budget()) {
      s.lower_bound = std::numeric_limits<double>::infinity();
      s.message = "some stage needs " + std::to_string(least) + " bytes by itself, with the input of the chain";
    }
  }
  if (s.lower_bound < std::numeric_limits<double>::infinity()) return false;
  s.status = solve_status::infeasible;
  return true;
}

REMAT_INLINE void conclude(const chain_problem& p, chain_solution& s, const run_clock& clock, stop_reason stopped) {
  prove(p, s);
  detail::solve_end::record(s, clock, stopped, "no schedule of this kind fits; that is no proof that there is none");
}

REMAT_INLINE std::vector<chain_step> store_all_steps(const chain& c) {
  std::vector<chain_step> steps;
  const auto loss = static_cast<std::uint32_t>(c.length() + 1);
  for (std::uint32_t i = 1; i <= loss; ++i) steps.push_back({chain_action::forward_all, i});
  for (std::uint32_t i = loss; i >= 1; --i) steps.push_back({chain_action::backward, i});
  return steps;
}

}  // namespace remat
