// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/revolve.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include "remat/chain/detail/forward_line.hpp"
#include "remat/chain/detail/stage_chain.hpp"
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
  if (l <= 1) return 0;
  if (c == 0) return l * (l - 1) / 2;
  if (c + 1 >= l) return l - 1;
  std::uint64_t r = 0, beta = 1, sum = 0;  // β(c + 1, r); β(c + 2, r − 1) = β(c + 1, 0) + … + β(c + 1, r − 1)
  while (beta < l) {
    sum += beta;
    ++r;
    beta = beta * (c + 1 + r) / r;  // the product is below l · 2l
  }
  return r * l - sum;
}

REMAT_INLINE std::uint64_t revolve_first_advance(std::uint64_t l, std::uint64_t c) {
  // Let ρ(l, c) be the repetition number, the least r with β(c + 1, r) ≥ l. One more step before the checkpoint costs 1
  // + ρ(j + 1, c) − ρ(l − j, c − 1) more. That is not negative if some q has j ≥ β(c + 1, q − 1) and j ≥ l − β(c, q +
  // 1).
  if (c + 1 >= l) return 1;
  std::uint64_t least = l - 1;
  std::uint64_t low = 1, high = c + 1;  // β(c + 1, q − 1) and β(c, q); below l · 2l
  for (std::uint64_t q = 1; low < least; ++q) {
    high = high * (c + q + 1) / (q + 1);  // β(c, q + 1)
    least = std::min(least, std::max(low, l - std::min(l, high)));
    if (high >= l) break;  // greater q only raise the other term
    low = low * (c + 1 + q) / q;
  }
  return least;
}

REMAT_INLINE std::vector<chain_step> revolve_steps(std::uint32_t length, std::uint32_t slots) {
  struct range {
    std::uint32_t first, last, slots;
  };
  std::vector<chain_step> out;
  out.reserve(static_cast<std::size_t>(revolve_advances(length, slots)) + 2 * std::size_t{length} + 2);
  // The steps from the kept input of `from` to that of `to`.
  const auto advance = [&](std::uint32_t from, std::uint32_t to) {
    for (std::uint32_t i = from; i < to; ++i)
      out.push_back({i == from ? chain_action::forward_checkpoint : chain_action::forward_none, i});
  };
  const auto turn = [&](std::uint32_t i) {
    out.push_back({chain_action::forward_all, i});
    if (i == length) {
      out.push_back({chain_action::forward_all, length + 1});
      out.push_back({chain_action::backward, length + 1});
    }
    out.push_back({chain_action::backward, i});
  };
  std::vector<range> left{{1, length, slots}};
  while (!left.empty()) {
    range now = left.back();
    left.pop_back();
    while (now.first < now.last && now.slots > 0) {
      const auto j = static_cast<std::uint32_t>(revolve_first_advance(now.last - now.first + 1, now.slots));
      advance(now.first, now.first + j);
      left.push_back({now.first, now.first + j - 1, now.slots});
      now = {now.first + j, now.last, now.slots - 1};
    }
    for (std::uint32_t i = now.last; i >= now.first; --i) {
      advance(now.first, i);
      turn(i);
    }
  }
  return out;
}

REMAT_INLINE solution revolve_solver::operator()(const problem& p, const revolve_options& options) const {
  require_valid_options(name, options);
  return detail::solve_by_own_method(
      p, name, options.run, improvement{}, {}, [&](run_clock& clock, solution& best) -> detail::method_end {
        const bool is_chain = detail::take_closed_form(p, best, name);
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
