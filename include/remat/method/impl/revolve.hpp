// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/revolve.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include "remat/chain/detail/binomial_steps.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/chain/detail/stage_chain.hpp"
#include "remat/core/detail/binomial.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/method/detail/cheap_start.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/detail/run_to_end.hpp"

namespace REMAT_NAMESPACE {

namespace detail::revolve_solve {

/// Tries numbers of slots on one chain of a graph, the largest first, until a schedule fits. Returns why it stopped.
inline stop_reason try_stages(const problem& p, const stage_chain& stages, run_clock& clock, solution& best) {
  for (std::uint32_t slots = stages.length(); slots-- > 0;) {
    if (const stop_reason why = clock.poll(); why != stop_reason::none) return why;
    clock.work(2 * p.graph().num_operations * work_of::visit);
    clock.report({.stage = "checkpoint slots", .done = clock.work_done()});
    const std::vector<chain_step> steps = revolve_steps(stages.length(), slots);
    bool fits = false;
    for (const bool whole : {true, false}) {
      schedule plan = schedule_computes(p.graph(), whole ? stages.expand(steps, true) : stages.expand(steps));
      if (check(p, plan).valid()) {
        accept(p, best, std::move(plan), revolve_solver::name);
        fits = true;
      }
      if (!whole || clock.control().stop.stop_requested() || clock.left() <= std::chrono::nanoseconds(0)) break;
    }
    if (fits) break;  // fewer slots take more time
  }
  return stop_reason::none;
}

}  // namespace detail::revolve_solve

REMAT_INLINE std::uint64_t revolve_advances(std::uint64_t l, std::uint64_t c) {
  return detail::binomial::advances(l, c);
}

REMAT_INLINE std::uint64_t revolve_first_advance(std::uint64_t l, std::uint64_t c) {
  return detail::binomial::first_advance(l, c);
}

REMAT_INLINE std::vector<chain_step> revolve_steps(std::uint32_t length, std::uint32_t slots) {
  return detail::binomial_steps(length, slots);
}

REMAT_INLINE solution revolve_solver::operator()(const problem& p, const revolve_options& options) const {
  require_valid_options(name, options);
  return detail::solve_by_own_method(
      p, name, options.run, improvement{}, {}, [&](run_clock& clock, solution& best) -> detail::method_end {
        const bool is_chain = detail::take_closed_form(p, best, name, &clock);
        for (const detail::forward_line& line : detail::find_forward_lines(p.graph())) {
          if (is_chain && line.operations.size() > options.max_stages) continue;  // coarser stages take longer
          for (const detail::cut_list& cuts : cut_levels(line, options.max_stages - std::size_t{1})) {
            const detail::stage_chain stages(p.graph(), line, cuts);
            if (const stop_reason why = detail::revolve_solve::try_stages(p, stages, clock, best);
                why != stop_reason::none)
              return {why};
          }
        }
        return {};
      });
}

REMAT_INLINE chain_solution revolve_solver::operator()(const chain_problem& p, const revolve_options& options) const {
  require_valid_options(name, options);
  run_clock clock(options.run, name);
  chain_solution best;
  clock.watch(best.time, best.lower_bound);
  detail::run_to_end(p, best, clock, [&] {
    stop_reason stopped = stop_reason::none;
    const auto length = static_cast<std::uint32_t>(p.stages().length());
    if (!accept(p, best, store_all_steps(p.stages())) && largest_working_set(p) <= p.budget()) {
      const std::optional<std::uint32_t> most = detail::most_slots(p);
      for (std::uint32_t slots = most ? *most + 1 : 0; slots-- > 0;) {
        stopped = clock.poll();
        if (stopped != stop_reason::none) break;
        clock.work(length * work_of::visit);
        clock.report({.stage = "checkpoint slots", .done = clock.work_done()});
        if (accept(p, best, revolve_steps(length, slots))) break;
      }
      if (stopped != stop_reason::none) detail::take_closed_form(p, best);
    }
    return stopped;
  });
  return best;
}

}  // namespace REMAT_NAMESPACE
