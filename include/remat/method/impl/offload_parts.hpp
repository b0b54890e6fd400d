// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/bound/offload.hpp"
#include "remat/core/run.hpp"
#include "remat/method/detail/copy_floor.hpp"
#include "remat/method/detail/copy_states.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/refined.hpp"
#include "remat/portfolio/detail/copy_parts.hpp"
#include "remat/portfolio/detail/driver.hpp"
#include "remat/portfolio/detail/shares.hpp"
#include "remat/refine/detail/copy_operations.hpp"
#include "remat/refine/detail/copy_planner.hpp"
#include "remat/refine/detail/copy_refinement.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE {

namespace detail::offload_solve {

/// How many candidates there are: the fields of `offload_options` of the same names.
struct candidate_counts {
  std::uint32_t budgets, refined_candidates;
};

/// The candidates of `offload`, in one turn: found, and refined where that pays.
class candidate_search {
 public:
  candidate_search(copy_setting& s, candidate_counts counts, run_clock& clock, solution& best)
      : s_(s), p_(s.instance), counts_(counts), clock_(clock), best_(best), planner_(p_) {
    planner_.must_stop = [this] { return clock_.should_stop(); };
  }
  candidate_search(const candidate_search&) = delete;  // the planner refers to it
  candidate_search& operator=(const candidate_search&) = delete;

  /// Leaves the states of the fastest candidates, from which annealing goes on.
  void run() {
    take_starts();
    take_states();
    scan_budgets();
    if (!is_over()) scan_choices();
    refine_candidates();
    s_.states = copy_states(counts_.refined_candidates);
    for (candidate& c : candidates_) s_.states.keep(std::move(c.state), c.time);
  }

 private:
  /// A way to divide the work between recomputation and copies.
  struct candidate {
    std::unique_ptr<copy_operations> instance;              // its budget bounds the schedules without times of copies
    std::vector<schedule> starts;                           // the instance's starts
    copy_refinement::state state;                           // the state of the best schedule with copies
    double time = std::numeric_limits<double>::infinity();  // … and its time
    bool ended = false;                                     // refinement does no more for it
  };

  [[nodiscard]] bool is_over() const { return best_.is_within(s_.gap) || clock_.should_stop(); }

  [[nodiscard]] std::int64_t part_of_budget(double part) const {
    return static_cast<std::int64_t>(part * static_cast<double>(p_.budget()));
  }

  /// A candidate whose instance is the problem under another budget, without copies.
  [[nodiscard]] candidate with_budget(std::int64_t budget) const {
    candidate c;
    const std::vector<std::uint8_t> none(p_.graph().num_tensors, 0);
    c.instance = std::make_unique<copy_operations>(p_.with_budget(budget), none, 0);
    return c;
  }

  /// The caller's schedules.
  void take_starts() {
    for (const schedule& start : s_.starts) {
      candidate c = with_budget(p_.budget());
      try_schedule(c, start, "start");
      c.starts.push_back(schedule_computes(p_, computes_of(start)));
      keep(std::move(c));
    }
  }

  /// The states that earlier parts have left: the listed order, and eviction that drops or copies.
  void take_states() {
    for (const auto& [time, state] : s_.states.entries()) {
      candidate c;
      c.state = state;
      c.time = time;
      c.ended = true;
      keep(std::move(c));
    }
  }

  /// Recomputation for the budget itself, and for larger ones.
  void scan_budgets() {
    run_clock part = clock_.part(link_shares::scan, evict_solver::name);
    const auto peak = static_cast<double>(p_.graph().baseline_peak), least = static_cast<double>(p_.budget());
    for (std::uint32_t i = 0; i < counts_.budgets && !best_.is_within(s_.gap) && !part.should_stop(); ++i) {
      const double f = static_cast<double>(i) / counts_.budgets;
      const double budget = least + std::max(0.0, peak - least) * f * f;
      run_eviction(with_budget(static_cast<std::int64_t>(budget)), part, {}, i == 0);
    }
  }

  /// Tries the tensors that the bound's choice has on the host, for several problems that are somewhat harder.
  void scan_choices() {
    run_clock part = clock_.part(link_shares::scan, evict_solver::name);
    std::vector<std::vector<tensor_id>> seen;
    for (const double room : {1.0, 0.97, 0.94, 0.9, 0.85, 0.8})
      for (const double speed : {1.0, 0.85, 0.7}) {
        if (best_.is_within(s_.gap) || part.should_stop()) return;
        const bool is_floor = room == 1.0 && speed == 1.0;
        offload_bound_result guide;
        if (!is_floor) guide = floor_within(harder(p_, room, speed), clock_, 0.05, 0);
        const offload_bound_result& choice = is_floor ? s_.floor : guide;
        if (choice.infeasible || choice.offloaded.empty() ||
            std::find(seen.begin(), seen.end(), choice.offloaded) != seen.end())
          continue;
        seen.push_back(choice.offloaded);
        for (const double budget : {1.0, 1.03, 1.07})
          for (const bool holds : {false, true}) {
            if (part.should_stop()) return;
            candidate c;
            std::vector<std::uint8_t> on_host(p_.graph().num_tensors, 0);
            c.state.factor.assign(p_.graph().num_tensors, 1.0F);
            for (const tensor_id t : choice.offloaded) {
              on_host[index(t)] = 1;
              c.state.factor[index(t)] = before_all_others;
            }
            c.instance = std::make_unique<copy_operations>(p_.with_budget(part_of_budget(budget)), on_host,
                                                           static_cast<std::uint32_t>(index(choice.moment)));
            run_eviction(std::move(c), part, holds ? choice.saved : std::vector<tensor_id>{}, false);
          }
      }
  }

  void run_eviction(candidate c, run_clock& part, std::vector<tensor_id> keep_resident, bool insist) {
    evict_options evicting;
    evicting.insist = insist;
    evicting.keep = std::move(keep_resident);
    solution s =
        solve_other_problem(part, link_shares::one_candidate, evict, c.instance->instance, std::move(evicting));
    if (!s.plan) return;
    try_schedule(c, *s.plan, evict_solver::name);
    c.starts.push_back(std::move(*s.plan));
    keep(std::move(c));
  }

  /// Places the copies of a candidate's schedule.
  void try_schedule(candidate& c, const schedule& plan, std::string_view by) {
    if (place_copies(p_, c.instance->computes(plan), planner_, c.state, c.time, clock_, best_, by_part(s_.whole, by)))
      clock_.report({.stage = "copies"});
  }

  void keep(candidate c) {
    if (!std::isfinite(c.time)) return;
    candidates_.push_back(std::move(c));
    sort_candidates();
    if (candidates_.size() > counts_.refined_candidates) candidates_.pop_back();
  }

  /// Refines recomputation in slices: of all candidates, then of the better half of those that can gain, and so on.
  void refine_candidates() {
    run_clock whole = clock_.part(link_shares::candidates, refined_solver::name);
    std::size_t width = candidates_.size();
    for (std::uint64_t round = 0; width > 0 && !is_over() && !whole.should_stop(); ++round) {
      std::vector<candidate*> open;
      for (candidate& c : candidates_)
        if (!c.ended && open.size() < width) open.push_back(&c);
      for (std::size_t i = 0; i < open.size() && !is_over() && !whole.should_stop(); ++i)
        refine_candidate(*open[i], whole, open.size() > 1 ? 0.4 / static_cast<double>(open.size() - i) : 1, round);
      sort_candidates();
      width = open.size() / 2;
    }
  }

  void refine_candidate(candidate& c, run_clock& whole, double share, std::uint64_t round) {
    refined_options refining;
    refining.starts = c.starts;
    refining.gap = 0;
    run_clock part = whole.part_on_other_problem(share, refined_solver::name);
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

  copy_setting& s_;
  const problem& p_;
  candidate_counts counts_;
  run_clock& clock_;
  solution& best_;
  copy_planner planner_;
  std::vector<candidate> candidates_;  // the fastest first
};

/// Adds the parts of `offload` to the turns of a solve. `turns` and `s` must outlive them.
inline void add_parts(driver& turns, copy_setting& s, candidate_counts counts) {
  turns.add(listed_order_part(s));
  turns.add(copy_bound_part(s));
  turns.add(copying_eviction_part(s));
  turns.add(turn("candidates", 1,
                 [&s, counts](run_clock& clock, solution& best) { candidate_search(s, counts, clock, best).run(); }));
  turns.add(copy_annealing_part(s));
}

}  // namespace detail::offload_solve

}  // namespace REMAT_NAMESPACE
