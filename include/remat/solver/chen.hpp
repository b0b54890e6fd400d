// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
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

namespace detail::segments {

/// The steps of a chain of `length` stages whose segments begin at the stages `begins` (ascending, the first is 1): the
/// forward keeps the inputs of the segments alone, and all of the last one; then each segment runs again, keeping all,
/// for its backward, the last one first.
[[nodiscard]] inline std::vector<chain_step> steps(std::uint32_t length, std::span<const std::uint32_t> begins) {
  std::vector<chain_step> out;
  for (std::size_t g = 0; g < begins.size(); ++g) {
    const bool last = g + 1 == begins.size();
    const std::uint32_t end = last ? length + 1 : begins[g + 1];
    for (std::uint32_t i = begins[g]; i < end; ++i)
      out.push_back({last             ? chain_action::forward_all
                     : i == begins[g] ? chain_action::forward_checkpoint
                                      : chain_action::forward_none,
                     i});
  }
  out.push_back({chain_action::forward_all, length + 1});
  out.push_back({chain_action::backward, length + 1});
  for (std::size_t g = begins.size(); g-- > 0;) {
    const bool last = g + 1 == begins.size();
    const std::uint32_t end = last ? length + 1 : begins[g + 1];
    if (!last)
      for (std::uint32_t i = begins[g]; i < end; ++i) out.push_back({chain_action::forward_all, i});
    for (std::uint32_t i = end; i-- > begins[g];) out.push_back({chain_action::backward, i});
  }
  return out;
}

/// Cuts a step at `cuts`, each stage a segment of its own, and takes the schedule if it fits and is faster.
inline bool accept_cuts(const problem& p, solution& best, const forward_line& line, const cut_list& cuts) {
  const stage_chain stages(p.graph(), line, cuts);
  std::vector<std::uint32_t> begins;
  for (std::uint32_t s = 1; s <= stages.length(); ++s) begins.push_back(s);
  const std::vector<chain_step> plan = steps(stages.length(), begins);
  const bool whole = accept(p, best, schedule_computes(p.graph(), stages.expand_whole(plan)));
  return accept(p, best, schedule_computes(p.graph(), stages.expand(plan))) || whole;
}

/// Every k-th of `cuts`, k chosen so that about √n of the n stages between them remain.
[[nodiscard]] inline cut_list every_sqrt(const cut_list& cuts) {
  const auto k = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(cuts.size() + 1))));
  cut_list out;
  for (std::size_t i = k; i <= cuts.size(); i += k) out.push_back(cuts[i - 1]);
  return out;
}

inline void report(run_clock& clock, std::string_view solver, const solution& best, double bound, std::uint64_t total) {
  progress news;
  news.solver = solver;
  news.stage = "segments";
  news.best_objective = best.time;
  news.lower_bound = bound;
  news.done = clock.work_done();
  news.total = total;
  clock.report(news);
}

}  // namespace detail::segments

struct chen_sqrt_options {
  run_control run{};
};

/// Every √n-th cut of the forward order is saved, the rest is computed again segment by segment.
/// \cite chen2016sublinear
///
/// On a graph the cuts are those of `cut_levels`, from everywhere to where the fewest bytes cross; the fastest schedule
/// that fits is the answer. On a chain they are its stages. Where the listed order fits, that is the answer.
/// A heuristic. O(levels · (operations + reads and writes)) time, at most log n levels. Polls before each of them.
struct chen_sqrt_solver {
  using options_type = chen_sqrt_options;
  static constexpr std::string_view name = "chen_sqrt";

  [[nodiscard]] solution operator()(const problem& p, const chen_sqrt_options& options = {}) const {
    run_clock clock(options.run);
    solution best;
    stop_reason stopped = stop_reason::none;
    if (!settled_by_listed_order(p, best)) {
      const forward_line line = find_forward_line(p.graph());
      for (const cut_list& level : cut_levels(line, line.operations.size())) {
        stopped = clock.poll();
        if (stopped != stop_reason::none) break;
        detail::segments::accept_cuts(p, best, line, detail::segments::every_sqrt(level));
        clock.work();
        detail::segments::report(clock, name, best, p.graph().needed_time, 0);
      }
    }
    conclude(p, best, clock, stopped);
    return best;
  }

  [[nodiscard]] chain_solution operator()(const chain_problem& p, const chen_sqrt_options& options = {}) const {
    const run_clock clock(options.run);
    const auto length = static_cast<std::uint32_t>(p.stages().length());
    chain_solution best;
    accept(p, best, store_all_steps(p.stages()));
    const stop_reason stopped = clock.poll();
    if (stopped != stop_reason::none) {
      conclude(p, best, clock, stopped);
      return best;
    }
    cut_list cuts;
    for (std::uint32_t i = 2; i <= length; ++i) cuts.push_back(i);
    std::vector<std::uint32_t> begins = detail::segments::every_sqrt(cuts);
    begins.insert(begins.begin(), 1);
    accept(p, best, detail::segments::steps(length, begins));
    conclude(p, best, clock, stopped);
    return best;
  }
};
inline constexpr chen_sqrt_solver chen_sqrt{};

struct chen_greedy_options {
  std::uint32_t sizes = 200;  ///< segment sizes tried for each level of cuts
  run_control run{};
};

/// Segments by bytes: along the forward order, a segment ends at the first cut where what it has made exceeds b bytes
/// \cite chen2016sublinear (their algorithm 3). The one parameter b is searched, from one segment to as many as there
/// are; the fastest schedule that fits is the answer.
///
/// The cuts are those of `cut_levels`. Where the listed order fits, that is the answer.
/// A heuristic. O(levels · sizes · (operations + reads and writes)) time. Polls before each segment size.
struct chen_greedy_solver {
  using options_type = chen_greedy_options;
  static constexpr std::string_view name = "chen_greedy";

  [[nodiscard]] solution operator()(const problem& p, const chen_greedy_options& options = {}) const {
    run_clock clock(options.run);
    solution best;
    stop_reason stopped = stop_reason::none;
    if (settled_by_listed_order(p, best)) {
      conclude(p, best, clock, stopped);
      return best;
    }
    const forward_line line = find_forward_line(p.graph());
    std::vector<std::int64_t> made(line.made.size() + 1, 0);  // before operations[i]
    std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < line.made.size(); ++i) {
      made[i + 1] = made[i] + line.made[i];
      if (line.made[i] > 0) smallest = std::min(smallest, line.made[i]);
    }
    const auto total = static_cast<double>(std::max<std::int64_t>(made.back(), 1));
    const double least = std::min(total, static_cast<double>(std::max<std::int64_t>(smallest, 1))) / 2;
    std::vector<cut_list> tried;
    for (const cut_list& level : cut_levels(line, line.operations.size())) {
      for (std::uint32_t k = 0; k < options.sizes && stopped == stop_reason::none; ++k) {
        const double share = (k + 1.0) / options.sizes;
        // Half of the sizes in equal steps, half in equal ratios.
        const double b = k % 2 == 0 ? total * (1 - share) : total * std::pow(least / total, share);
        cut_list cuts;
        std::int64_t begin = 0;
        for (const std::uint32_t cut : level)
          if (static_cast<double>(made[cut] - begin) > b) {
            cuts.push_back(cut);
            begin = made[cut];
          }
        if (std::find(tried.begin(), tried.end(), cuts) != tried.end()) continue;
        stopped = clock.poll();
        if (stopped != stop_reason::none) break;
        detail::segments::accept_cuts(p, best, line, cuts);
        clock.work();
        detail::segments::report(clock, name, best, p.graph().needed_time, 0);
        tried.push_back(std::move(cuts));
      }
    }
    conclude(p, best, clock, stopped);
    return best;
  }
};
inline constexpr chen_greedy_solver chen_greedy{};

}  // namespace remat
