// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/chen.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "remat/chain/detail/forward_line.hpp"
#include "remat/chain/detail/stage_chain.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/detail/run_to_end.hpp"

namespace REMAT_NAMESPACE {

namespace detail::chen_solve {

/// The steps of a chain of `length` stages in segments that begin at the stages `begins` (ascending, the first is 1).
/// The forward keeps the inputs of the segments, and everything of the last segment. Then, from the last segment to the
/// first, the forward runs again and keeps everything, and the backward follows.
[[nodiscard]] inline std::vector<chain_step> make_steps(std::uint32_t length, std::span<const std::uint32_t> begins) {
  std::vector<chain_step> out;
  const auto is_last = [&](std::size_t g) { return g + 1 == begins.size(); };
  const auto end = [&](std::size_t g) { return is_last(g) ? length + 1 : begins[g + 1]; };
  for (std::size_t g = 0; g < begins.size(); ++g)
    for (std::uint32_t i = begins[g]; i < end(g); ++i)
      out.push_back({is_last(g)       ? chain_action::forward_all
                     : i == begins[g] ? chain_action::forward_checkpoint
                                      : chain_action::forward_none,
                     i});
  out.push_back({chain_action::forward_all, length + 1});
  out.push_back({chain_action::backward, length + 1});
  for (std::size_t g = begins.size(); g-- > 0;) {
    if (!is_last(g))
      for (std::uint32_t i = begins[g]; i < end(g); ++i) out.push_back({chain_action::forward_all, i});
    for (std::uint32_t i = end(g); i-- > begins[g];) out.push_back({chain_action::backward, i});
  }
  return out;
}

/// Every k-th of `cuts`, with k such that about √n of the n stages between the cuts remain.
[[nodiscard]] inline cut_list every_sqrt(const cut_list& cuts) {
  const auto k = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(cuts.size() + 1))));
  cut_list out;
  for (std::size_t i = k; i <= cuts.size(); i += k) out.push_back(cuts[i - 1]);
  return out;
}

/// The segments of a line by bytes.
class segment_sizes {
 public:
  /// `count` sizes.
  segment_sizes(const forward_line& line, std::uint32_t count) : count_(count), made_(line.made.size() + 1, 0) {
    std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = 0; i < line.made.size(); ++i) {
      made_[i + 1] = made_[i] + line.made[i];
      if (line.made[i] > 0) smallest = std::min(smallest, line.made[i]);
    }
    total_ = static_cast<double>(std::max<std::int64_t>(made_.back(), 1));
    least_ = std::min(total_, static_cast<double>(std::max<std::int64_t>(smallest, 1))) / 2;
  }

  /// The k-th size in bytes: half of the sizes in equal steps, half in equal ratios.
  [[nodiscard]] double size(std::uint32_t k) const {
    const double share = (k + 1.0) / count_;
    return k % 2 == 0 ? total_ * (1 - share) : total_ * std::pow(least_ / total_, share);
  }
  /// The cuts of `level` at which a segment has made more than `bytes`.
  [[nodiscard]] cut_list cuts(const cut_list& level, double bytes) const {
    cut_list out;
    std::int64_t begin = 0;
    for (const std::uint32_t cut : level)
      if (static_cast<double>(made_[cut] - begin) > bytes) {
        out.push_back(cut);
        begin = made_[cut];
      }
    return out;
  }

 private:
  std::uint32_t count_;
  std::vector<std::int64_t> made_;  // bytes before operations[i]
  double total_ = 0, least_ = 0;
};

/// Tries cuts of a graph, each stage a segment of its own.
class cut_search {
 public:
  cut_search(const problem& p, forward_line line, std::string_view solver, run_clock& clock, solution& best)
      : p_(p), solver_(solver), clock_(clock), best_(best), line_(std::move(line)) {}

  /// Takes the schedule of `cuts` if it fits and is faster than the best. Returns why the search must stop.
  stop_reason attempt(const cut_list& cuts) {
    if (const stop_reason why = clock_.poll(); why != stop_reason::none) return why;
    clock_.work(2 * p_.graph().num_operations * work_of::visit);
    const stage_chain stages = stage_chain::without_sizes(p_.graph(), line_, cuts);
    if (const stop_reason why = clock_.poll(); why != stop_reason::none) return why;
    std::vector<std::uint32_t> begins;
    for (std::uint32_t s = 1; s <= stages.length(); ++s) begins.push_back(s);
    const std::vector<chain_step> plan = make_steps(stages.length(), begins);
    accept(p_, best_, schedule_computes(p_.graph(), stages.expand(plan, true)), solver_);
    if (const stop_reason why = clock_.poll(); why != stop_reason::none) return why;
    accept(p_, best_, schedule_computes(p_.graph(), stages.expand(plan)), solver_);
    clock_.report({.stage = "segments", .done = clock_.work_done()});
    return stop_reason::none;
  }

  /// Tries about √n of the n stages of every level of cuts. Returns why the search must stop.
  stop_reason attempt_sqrt() {
    for (const cut_list& level : cut_levels(line_, line_.operations.size()))
      if (const stop_reason why = attempt(every_sqrt(level)); why != stop_reason::none) return why;
    return stop_reason::none;
  }

  /// Tries segments of `count` sizes in bytes at every level of cuts. Returns why the search must stop.
  stop_reason attempt_all(std::uint32_t count) {
    const segment_sizes sizes(line_, count);
    std::vector<cut_list> tried;
    for (const cut_list& level : cut_levels(line_, line_.operations.size()))
      for (std::uint32_t k = 0; k < count; ++k) {
        cut_list cuts = sizes.cuts(level, sizes.size(k));
        if (std::find(tried.begin(), tried.end(), cuts) != tried.end()) continue;
        if (const stop_reason why = attempt(cuts); why != stop_reason::none) return why;
        tried.push_back(std::move(cuts));
      }
    return stop_reason::none;
  }

 private:
  const problem& p_;
  std::string_view solver_;
  run_clock& clock_;
  solution& best_;
  forward_line line_;
};

/// Calls `attempt_on(search)` for each line of the graph, until one call returns a reason to stop.
template <class Attempt>
[[nodiscard]] solution solve_lines(const problem& p, std::string_view solver, const run_control& run,
                                   Attempt&& attempt_on) {
  return solve_by_own_method(p, solver, run, improvement{}, {}, [&](run_clock& clock, solution& best) -> method_end {
    for (forward_line& line : find_forward_lines(p.graph())) {
      cut_search search(p, std::move(line), solver, clock, best);
      if (const stop_reason why = attempt_on(search); why != stop_reason::none) return {why};
    }
    return {};
  });
}

}  // namespace detail::chen_solve

REMAT_INLINE solution chen_sqrt_solver::operator()(const problem& p, const chen_sqrt_options& options) const {
  using detail::chen_solve::cut_search;
  return detail::chen_solve::solve_lines(p, name, options.run,
                                         [](cut_search& search) { return search.attempt_sqrt(); });
}

REMAT_INLINE chain_solution chen_sqrt_solver::operator()(const chain_problem& p,
                                                         const chen_sqrt_options& options) const {
  run_clock clock(options.run);
  const auto length = static_cast<std::uint32_t>(p.stages().length());
  chain_solution best;
  detail::run_to_end(p, best, clock, [&] {
    accept(p, best, store_all_steps(p.stages()));
    clock.work(std::min(length * work_of::visit, clock.work_left()));
    detail::cut_list cuts;
    for (std::uint32_t i = 2; i <= length; ++i) cuts.push_back(i);
    std::vector<std::uint32_t> begins = detail::chen_solve::every_sqrt(cuts);
    begins.insert(begins.begin(), 1);
    accept(p, best, detail::chen_solve::make_steps(length, begins));
    return clock.poll();
  });
  return best;
}

REMAT_INLINE solution chen_greedy_solver::operator()(const problem& p, const chen_greedy_options& options) const {
  require_valid_options(name, options);
  return detail::chen_solve::solve_lines(
      p, name, options.run, [&](detail::chen_solve::cut_search& search) { return search.attempt_all(options.sizes); });
}

}  // namespace REMAT_NAMESPACE
