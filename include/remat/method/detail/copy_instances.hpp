// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/bound/offload.hpp"
#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/hierarchy/partition.hpp"
#include "remat/method/detail/copy_annealing.hpp"
#include "remat/method/detail/copy_floor.hpp"
#include "remat/method/detail/copy_states.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/copy_operations.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// A problem with a link, solved by a method that knows no copies.
///
/// The method solves instances without a link: first the problem itself without copies; then graphs in which the
/// tensors that the bound's choice has on the host are split in two, and a copy is an operation that takes what the
/// bound charges for it (`copy_operations`), so the ways of a part hold, recompute or copy; at last the problem without
/// copies for larger budgets. The choices are those for the budget, and for a smaller one with a slower link, since
/// copies never hide completely. The sequence of computes of each answer becomes a schedule with copies
/// (`copy_placement`).
template <class Method>
class split_instances {
 public:
  /// `method(instance, run)` solves a problem without a link. All arguments must outlive this object.
  split_instances(const problem& p, run_clock& clock, solution& best, std::string_view solver, const Method& method)
      : p_(p),
        clock_(clock),
        best_(best),
        solver_(solver),
        method_(method),
        placement_(p, clock, best, solver, states_) {}

  /// Solves the instances. The bound gets its share of the limits first.
  void run() {
    placement_.place_listed_order();
    floor_ = floor_within(p_, clock_, floor_share, floor_branch_nodes(p_));
    if (take_floor(p_, floor_, clock_, best_)) return;
    const std::vector<offload_bound_result> choices = find_choices();
    const std::vector<std::uint8_t> none(p_.graph().num_tensors, 0);
    solve(copy_operations(p_, none, 0), {}, share_alone);
    std::size_t left = choices.size() * std::size(split_budgets) + std::size(larger_budgets);
    for (const offload_bound_result& choice : choices) {
      std::vector<std::uint8_t> on_host = none;
      for (const tensor_id t : choice.offloaded) on_host[index(t)] = 1;
      const copy_costs costs = prices_by_floor(p_, floor_, 1);
      for (const double budget : split_budgets)
        solve(copy_operations(with_part_of_budget(budget), on_host, static_cast<std::uint32_t>(index(choice.moment)),
                              costs.in_price),
              prefer(p_.graph(), choice.offloaded), 1.0 / static_cast<double>(left--));
    }
    for (const double budget : larger_budgets)
      solve(copy_operations(with_part_of_budget(budget), none, 0), {}, 1.0 / static_cast<double>(left--));
  }

  /// The fastest schedules, as states of the search that changes recomputation and copies together.
  [[nodiscard]] std::vector<copy_refinement::state> states() const { return states_.states(); }

 private:
  static constexpr std::size_t most_states = 4;
  static constexpr double share_alone = 0.35;
  static constexpr double split_budgets[] = {1.0, 1.05}, larger_budgets[] = {1.15, 1.5};  // parts of the true one

  [[nodiscard]] problem with_part_of_budget(double part) const {
    return p_.with_budget(static_cast<std::int64_t>(part * static_cast<double>(p_.budget())));
  }

  /// The choices of the bound, each once.
  [[nodiscard]] std::vector<offload_bound_result> find_choices() {
    std::vector<offload_bound_result> out;
    for (const auto& [room, speed] : {std::pair(1.0, 1.0), std::pair(0.92, 0.85)}) {
      if (clock_.should_stop()) break;
      offload_bound_result choice =
          out.empty() && room == 1.0 ? floor_ : floor_within(harder(p_, room, speed), clock_, 0.03, 0);
      const auto is_same = [&](const offload_bound_result& other) { return other.offloaded == choice.offloaded; };
      if (!choice.infeasible && !choice.offloaded.empty() && std::none_of(out.begin(), out.end(), is_same))
        out.push_back(std::move(choice));
    }
    return out;
  }

  /// Solves one instance within its share of what is left of the limits.
  void solve(const copy_operations& split, const std::vector<float>& factor, double share) {
    if (clock_.should_stop() || best_.is_within(0)) return;
    run_clock part = clock_.part_on_other_problem(share, solver_);
    const double before = best_.time;
    solution s = solve_within_memory(part, [&] { return method_(split.instance, part.control()); });
    part.work(s.statistics.work);
    if (!s.plan) return;
    placement_.place(split.computes(*s.plan), factor, {});
    if (best_.time < before) best_.statistics.own = std::move(s.statistics.own);
  }

  const problem& p_;
  run_clock& clock_;
  solution& best_;
  std::string_view solver_;
  const Method& method_;
  copy_states states_{most_states};
  copy_placement placement_;
  offload_bound_result floor_;
};

/// The frame of a named solver on a problem with a link: `split_instances` by `method(instance, options)` without
/// improvement, with one cache of ways for all instances, and then, if `options` want it, the search that changes
/// recomputation and copies together.
template <class Options, class Method>
[[nodiscard]] solution solve_by_split_instances(const problem& p, std::string_view solver, const Options& options,
                                                const Method& method) {
  struct annealing_after {
    bool wanted;
    std::vector<copy_refinement::state> states{};
    explicit operator bool() const { return wanted; }
    stop_reason operator()(const problem& whole, solution& best, const std::vector<schedule>&, run_clock& clock,
                           std::string_view by) const {
      anneal_copies(whole, states, 0, clock, best, by);
      return clock.poll();
    }
  } annealing{bool{options.improve}};
  Options alone = options;
  alone.improve = {};
  if (!alone.cache) alone.cache = make_way_cache();
  const auto solve_alone = [&](const problem& instance, const run_control& run) {
    alone.run = run;
    return method(instance, alone);
  };
  return solve_by_own_method(p, solver, options.run, annealing, {.may_copy = true},
                             [&](run_clock& own, solution& best) {
                               split_instances search(p, own, best, solver, solve_alone);
                               search.run();
                               annealing.states = search.states();
                               return own.poll();
                             });
}

}  // namespace REMAT_NAMESPACE::detail
