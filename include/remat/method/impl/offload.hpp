// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/offload.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/bound/offload.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/refined.hpp"
#include "remat/refine/detail/copy_operations.hpp"
#include "remat/refine/detail/copy_planner.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE {

namespace detail::offload_solve {

/// One call of `offload` on a problem with a link.
class copy_search {
 public:
  copy_search(const problem& p, const offload_options& options, run_clock& clock, solution& best)
      : p_(p), options_(options), clock_(clock), best_(best), planner_(p) {
    planner_.must_stop = [this] { return clock_.should_stop(); };
  }
  copy_search(const copy_search&) = delete;  // the planner refers to it
  copy_search& operator=(const copy_search&) = delete;

  stop_reason run() {
    if (!prove_floor())
      for (std::uint32_t level = 0; level < finest_level && !is_over(); ++level) {
        scan_budgets(level);
        if (level == 0 && !is_over()) scan_choices();
        refine_candidates();
      }
    return stopped_ == stop_reason::none ? clock_.poll() : stopped_;
  }

 private:
  /// A way to divide the work between recomputation and copies.
  struct candidate {
    std::unique_ptr<copy_operations> instance;              // its budget bounds the schedules without times of copies
    std::vector<std::uint8_t> on_host;                      // of a tensor: it leaves the device first
    std::vector<schedule> starts;                           // of the instance
    double time = std::numeric_limits<double>::infinity();  // of the best schedule with copies
    bool ended = false;                                     // refinement does no more for it
  };
  static constexpr std::uint32_t finest_level = 4;
  static constexpr std::uint32_t most_branched = 2000;  // operations of a graph for whose bound branching takes little
  static constexpr double floor_share = 0.15, scan_share = 0.4, one_share = 0.25;

  [[nodiscard]] bool is_over() {
    if (best_.status == solve_status::infeasible || best_.is_within(options_.gap)) return true;
    stopped_ = clock_.poll();
    return stopped_ != stop_reason::none;
  }

  [[nodiscard]] std::int64_t part_of_budget(double part) const {
    return static_cast<std::int64_t>(part * static_cast<double>(p_.budget()));
  }

  /// The bound, whose choice guides the search. True: no schedule is within the budgets.
  bool prove_floor() {
    const bool is_large = p_.graph().num_operations > most_branched;
    floor_ = bound_of(p_, floor_share, is_large ? 0 : 100);
    best_.lower_bound =
        std::max({best_.lower_bound, floor_.lower_bound, p_.graph().needed_time, p_.known_bound().value_or(0)});
    best_.proven = true;
    if (floor_.infeasible) {
      best_.status = solve_status::infeasible;
      best_.message = floor_.least_memory.message(p_.operation_name(floor_.least_memory.operation));
      best_.obstacle = floor_.least_memory.operation;
    }
    clock_.watch(best_.time, best_.lower_bound);
    return floor_.infeasible;
  }
  [[nodiscard]] offload_bound_result bound_of(const problem& p, double share, std::uint32_t branch_nodes) {
    run_clock part = clock_.part(share, "bound");
    offload_bound_options proving;
    proving.branch_nodes = branch_nodes;
    proving.run = part.control();
    return offload_bound(p, proving);
  }

  /// Recomputation for the budget itself, and for larger ones. Each level takes those between the ones before.
  void scan_budgets(std::uint32_t level) {
    run_clock part = clock_.part(scan_share, evict_solver::name);
    const std::vector<std::uint8_t> none(p_.graph().num_tensors, 0);
    const auto peak = static_cast<double>(p_.graph().baseline_peak), least = static_cast<double>(p_.budget());
    const std::uint32_t count = options_.budgets << level, step = level == 0 ? 1 : 2;
    for (std::uint32_t i = step - 1; i <= count && !best_.is_within(options_.gap) && !part.should_stop(); i += step) {
      const double f = static_cast<double>(i) / count;
      const double budget = least + std::max(0.0, peak - least) * f * f;
      candidate c;
      c.on_host = none;
      c.instance = std::make_unique<copy_operations>(p_.with_budget(static_cast<std::int64_t>(budget)), none, 0);
      if (i == count) {
        try_schedule(c, listed_order(c.instance->instance), evict_solver::name);  // nothing to refine
      } else {
        run_eviction(std::move(c), part, {}, i == 0);
      }
    }
  }

  /// What the bound's choice has on the host, for several problems that are somewhat harder.
  void scan_choices() {
    run_clock part = clock_.part(scan_share, evict_solver::name);
    std::vector<std::vector<tensor_id>> seen;
    for (const double room : {1.0, 0.97, 0.94, 0.9, 0.85, 0.8})
      for (const double speed : {1.0, 0.85, 0.7}) {
        if (best_.is_within(options_.gap) || part.should_stop()) return;
        host_link slower = *p_.link();
        slower.out *= speed;
        slower.in *= speed;
        const bool is_floor = room == 1.0 && speed == 1.0;
        offload_bound_result guide;
        if (!is_floor)
          guide = bound_of(p_.with_budget(part_of_budget(room)).with_link(slower, p_.host_budget()), 0.05, 0);
        const offload_bound_result& choice = is_floor ? floor_ : guide;
        if (choice.infeasible || choice.offloaded.empty() ||
            std::find(seen.begin(), seen.end(), choice.offloaded) != seen.end())
          continue;
        seen.push_back(choice.offloaded);
        for (const double budget : {1.0, 1.03, 1.07})
          for (const bool holds : {false, true}) {
            if (part.should_stop()) return;
            candidate c;
            c.on_host.assign(p_.graph().num_tensors, 0);
            for (const tensor_id t : choice.offloaded) c.on_host[index(t)] = 1;
            c.instance = std::make_unique<copy_operations>(p_.with_budget(part_of_budget(budget)), c.on_host,
                                                           static_cast<std::uint32_t>(index(choice.moment)));
            run_eviction(std::move(c), part, holds ? choice.saved : std::vector<tensor_id>{}, false);
          }
      }
  }

  void run_eviction(candidate c, run_clock& part, std::vector<tensor_id> keep_resident, bool insist) {
    evict_options evicting;
    evicting.insist = insist;
    evicting.keep = std::move(keep_resident);
    solution s = solve_part(part, one_share, evict, c.instance->instance, std::move(evicting));
    if (!s.plan) return;
    try_schedule(c, *s.plan, evict_solver::name);
    c.starts.push_back(std::move(*s.plan));
    keep(std::move(c));
  }

  /// Places the copies of a candidate's schedule.
  void try_schedule(candidate& c, const schedule& plan, std::string_view by) {
    const std::vector<std::uint32_t> computes = c.instance->computes(plan);
    for (const double bytes_exponent : {0.0, 0.5}) {
      if (clock_.should_stop()) return;
      clock_.work(computes.size() * work_of::visit);
      std::optional<schedule> copied = planner_.plan(computes, {bytes_exponent, c.on_host}, 3);
      if (!copied) continue;
      const acceptance taken = accept(p_, best_, std::move(*copied), by_part(offload_solver::name, by));
      if (taken.report.valid()) c.time = std::min(c.time, taken.report.time);
    }
    clock_.report({.stage = "copies"});
  }

  void keep(candidate c) {
    if (!std::isfinite(c.time)) return;
    candidates_.push_back(std::move(c));
    sort_candidates();
    if (candidates_.size() > options_.refined_candidates) candidates_.pop_back();
  }

  /// Refines candidates in slices: all of them, then the better half of those that can still gain, and so on.
  void refine_candidates() {
    std::size_t width = candidates_.size();
    for (std::uint64_t round = 0; !candidates_.empty() && !is_over(); ++round) {
      const std::size_t n = std::min(width, candidates_.size());
      for (std::size_t i = 0; i < n && !is_over(); ++i)
        refine_candidate(candidates_[i], n > 1 ? 0.4 / static_cast<double>(n - i) : 1, round);
      std::erase_if(candidates_, [](const candidate& c) { return c.ended; });
      sort_candidates();
      width = (n + 1) / 2;
    }
  }

  void refine_candidate(candidate& c, double share, std::uint64_t round) {
    refined_options refining;
    refining.starts = c.starts;
    run_clock part = clock_.part(share, refined_solver::name);
    refining.run = part.limits();
    refining.run.seed += round;
    solution s = solve_within_memory(part, [&] { return refined(c.instance->instance, refining); });
    part.work(s.statistics.work);
    c.ended = !s.plan || s.status == solve_status::optimal || share == 1;
    if (!s.plan) return;
    try_schedule(c, *s.plan, refined_solver::name);
    c.starts.insert(c.starts.begin(), std::move(*s.plan));
    if (c.starts.size() > 4) c.starts.pop_back();
  }

  void sort_candidates() {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const candidate& a, const candidate& b) { return a.time < b.time; });
  }

  const problem& p_;
  const offload_options& options_;
  run_clock& clock_;
  solution& best_;
  copy_planner planner_;
  offload_bound_result floor_;
  std::vector<candidate> candidates_;  // the fastest first
  stop_reason stopped_ = stop_reason::none;
};

}  // namespace detail::offload_solve

REMAT_INLINE solution offload_solver::operator()(const problem& p, const offload_options& options) const {
  require_valid_options(name, options);
  run_clock clock(options.run, name);
  solution best;
  best.lower_bound = p.graph().needed_time;
  clock.watch(best.time, best.lower_bound);
  try {
    stop_reason stopped = stop_reason::none;
    if (!settled_by_listed_order(p, best, name) && (stopped = clock.poll()) == stop_reason::none) {
      if (p.link()) {
        stopped = detail::offload_solve::copy_search(p, options, clock, best).run();
      } else {
        solution s = detail::solve_part(clock, 1, refined, p, {});
        detail::take_bound(best, s);
        if (s.status == solve_status::infeasible) best.status = s.status;
        if (s.plan) accept(p, best, std::move(*s.plan), by_part(name, s.by));
        stopped = clock.poll();
      }
    }
    conclude(p, best, clock, stopped);
  } catch (const std::bad_alloc&) {
    conclude_out_of_memory(best, clock);
  }
  return best;
}

}  // namespace REMAT_NAMESPACE
