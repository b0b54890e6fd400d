// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "remat/chain/chain_problem.hpp"
#include "remat/chain/chain_schedule.hpp"
#include "remat/chain/stage_chain.hpp"
#include "remat/core/control.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/chain_solution.hpp"
#include "remat/solver/no_remat.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

namespace detail::binomial {

/// The least number of forward steps that bring the backward of a homogeneous chain of l steps to its start, with c
/// checkpoints beside the input, besides the one forward of each step that saves for its backward:
/// r·l − β(c + 2, r − 1), where β(c, r) = (c + r over c) and r is the least with β(c + 1, r) ≥ l. (The paper's c counts
/// the input.) O(r) time. Precondition: l < 2³¹.
[[nodiscard]] inline std::uint64_t advances(std::uint64_t l, std::uint64_t c) {
  if (l <= 1) return 0;
  if (c == 0) return l * (l - 1) / 2;
  if (c + 1 >= l) return l - 1;
  std::uint64_t r = 0, beta = 1, sum = 0;  // β(c + 1, r); β(c + 2, r − 1) = β(c + 1, 0) + … + β(c + 1, r − 1)
  while (beta < l) {
    sum += beta;
    ++r;
    beta = beta * (c + 1 + r) / r;  // below l · 2l
  }
  return r * l - sum;
}

/// How many steps to go before the next checkpoint is set: the smallest best one. Precondition: l > 1, c > 0.
/// What it minimises is convex in it. O(r log l) time.
[[nodiscard]] inline std::uint64_t first_advance(std::uint64_t l, std::uint64_t c) {
  const auto cost = [&](std::uint64_t j) { return j + advances(l - j, c - 1) + advances(j, c); };
  std::uint64_t low = 1, high = l - 1;
  while (low < high) {
    const std::uint64_t middle = (low + high) / 2;
    if (cost(middle + 1) >= cost(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/// The steps of Revolve on a chain of `length` stages with `slots` checkpoints beside the input.
/// As many steps as `advances` counts, 2 · length, and the loss.
[[nodiscard]] inline std::vector<chain_step> steps(std::uint32_t length, std::uint32_t slots) {
  struct range {
    std::uint32_t first, last, slots;
  };
  std::vector<chain_step> out;
  const auto advance = [&](std::uint32_t from, std::uint32_t to) {  // from the kept input of `from` to that of `to`
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
      const auto j = static_cast<std::uint32_t>(first_advance(now.last - now.first + 1, now.slots));
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

}  // namespace detail::binomial

struct revolve_options {
  std::uint32_t max_stages = 150;  ///< of the chain that a graph is cut into
  run_control run{};
};

/// Optimal checkpointing of homogeneous chains: with c checkpoint slots the fewest forward steps, by the binomial rule
/// \cite griewank2000revolve.
///
/// Of the numbers of slots the largest is taken whose schedule fits. On a chain whose stages are alike that is the
/// optimum among the schedules that save a stage for its backward alone; on others stages count as alike. On a graph
/// the chains are those of `cut_levels`, and the fastest schedule that fits is the answer. Where everything can be
/// kept, that is the answer. Differs from the paper in that the number of slots is searched: O(L) tries of O(steps)
/// each (on a graph, times the operations of a stage). Polls before each of them.
struct revolve_solver {
  using options_type = revolve_options;
  static constexpr std::string_view name = "revolve";

  [[nodiscard]] solution operator()(const problem& p, const revolve_options& options = {}) const {
    run_clock clock(options.run);
    solution best;
    stop_reason stopped = stop_reason::none;
    if (settled_by_listed_order(p, best)) {
      conclude(p, best, clock, stopped);
      return best;
    }
    const forward_line line = find_forward_line(p.graph());
    const std::size_t most = std::max<std::uint32_t>(options.max_stages, 1) - 1;
    for (const cut_list& cuts : cut_levels(line, most)) {
      const stage_chain stages(p.graph(), line, cuts);
      for (std::uint32_t slots = stages.length(); slots-- > 0;) {
        stopped = clock.poll();
        if (stopped != stop_reason::none) break;
        clock.work();
        report(clock, best.time, p.graph().needed_time);
        const std::vector<chain_step> steps = detail::binomial::steps(stages.length(), slots);
        bool fits = false;
        for (const auto& operations : {stages.expand_whole(steps), stages.expand(steps)}) {
          const schedule plan = schedule_computes(p.graph(), operations);
          if (!check(p, plan).valid()) continue;
          accept(p, best, plan);
          fits = true;
        }
        if (fits) break;  // fewer slots take more time
      }
      if (stopped != stop_reason::none) break;
    }
    conclude(p, best, clock, stopped);
    return best;
  }

  [[nodiscard]] chain_solution operator()(const chain_problem& p, const revolve_options& options = {}) const {
    run_clock clock(options.run);
    chain_solution best;
    stop_reason stopped = stop_reason::none;
    const auto length = static_cast<std::uint32_t>(p.stages().length());
    if (accept(p, best, store_all_steps(p.stages())) || largest_working_set(p) > p.budget()) {
      conclude(p, best, clock, stopped);
      return best;
    }
    for (std::uint32_t slots = length; slots-- > 0;) {
      stopped = clock.poll();
      if (stopped != stop_reason::none) break;
      clock.work();
      report(clock, best.time, p.stages().store_all_time());
      if (accept(p, best, detail::binomial::steps(length, slots))) break;
    }
    conclude(p, best, clock, stopped);
    return best;
  }

 private:
  static void report(run_clock& clock, double best, double bound) {
    progress news;
    news.solver = name;
    news.stage = "checkpoint slots";
    news.best_objective = best;
    news.lower_bound = bound;
    news.done = clock.work_done();
    clock.report(news);
  }
};
inline constexpr revolve_solver revolve{};

}  // namespace remat
