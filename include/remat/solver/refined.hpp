// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/bound/turnaround.hpp"
#include "remat/core/control.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/anneal.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/evict.hpp"
#include "remat/solver/exact.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

struct refined_options {
  std::vector<schedule> starts{};    ///< further schedules to start from; those that are not within the budget are left
  std::uint32_t branch_nodes = 200;  ///< of the bound: `turnaround_options::branch_nodes`
  std::uint32_t searches = 4;        ///< `refine_options::searches`
  run_control run{};
};

/// Bound, eviction, refinement: the turnaround bound first, then `evict`, plain and holding on to the tensors that the
/// bound's cuts save (for the budget and for somewhat smaller ones, which leaves room for what is made again), under
/// random preferences where that is still far from the bound, then `refine` on all that these found, until the bound is
/// met or a limit is reached.
///
/// Steps of at most `small_step` operations are solved by `exact` at once, if that ends within some ten thousand
/// states; those of at most `medium_step` that are not within 0.1 % of the bound get a quarter of the limits for it.
///
/// Heuristic with a proof: `lower_bound` is proven, `optimal` is said where the schedule meets it. Without a limit of
/// time or work, refinement takes `refine_options::default_moves` moves. For a seed and a work limit (moves) the answer
/// is the same whatever the threads. Cancellation: as `evict` and `refine`.
struct refined_solver {
  using options_type = refined_options;
  static constexpr std::string_view name = "refined";
  static constexpr std::uint32_t small_step = 16, medium_step = 256;

  [[nodiscard]] solution operator()(const problem& p, const refined_options& options = {}) const {
    run_clock clock(options.run);
    solution best;
    stop_reason stopped = clock.poll();
    const auto finish = [&] {
      conclude(p, best, clock, stopped);
      return std::move(best);
    };
    if (stopped != stop_reason::none) return finish();

    turnaround_analysis analysis(p);
    turnaround_options bounding;
    bounding.branch_nodes = options.branch_nodes;
    bounding.run.stop = options.run.stop;
    bounding.run.time_limit =
        options.run.time_limit == std::chrono::nanoseconds::max() ? options.run.time_limit : options.run.time_limit / 5;
    const turnaround_result bound = analysis.bound(p.budget(), bounding);
    best.proven = true;
    best.lower_bound = std::max({bound.lower_bound, p.graph().needed_time, p.known_bound().value_or(0)});
    if (bound.infeasible) {
      best.message = bound.least_memory.message();
      best.obstacle = bound.least_memory.operation;
    }
    if (prove(p, best)) return finish();
    const problem q = p.with_known_bound(best.lower_bound);

    if (p.graph().num_operations <= small_step && search_exactly(q, options, clock, best)) return finish();
    std::vector<schedule> starts;
    const auto take = [&](const solution& s) {
      if (!s.plan) return;
      starts.push_back(*s.plan);
      accept(q, best, *s.plan);
    };
    for (const schedule& s : options.starts)
      if (check(q, s).valid()) {
        starts.push_back(s);
        accept(q, best, s);
      }
    const auto part = [&] {
      evict_options evicting;
      evicting.run.stop = options.run.stop;
      evicting.run.seed = options.run.seed;
      evicting.run.time_limit = clock.left();
      return evicting;
    };
    take(evict(q, part()));
    bounding.branch_nodes = 0;
    for (const double room : {1.0, 0.95, 0.9, 0.8}) {
      if (best.plan && best.time <= best.lower_bound * (1 + 1e-12)) break;
      stopped = clock.poll();
      if (stopped != stop_reason::none) break;
      bounding.run.time_limit = clock.left();
      const turnaround_result cut =
          room == 1.0 ? bound
                      : analysis.bound(static_cast<std::int64_t>(room * static_cast<double>(q.budget())), bounding);
      if (cut.infeasible) break;
      evict_options guided = part();
      guided.keep = cut.saved;
      guided.insist = false;
      take(evict(q, guided));
    }
    // Where eviction is far from the bound, other preferences are worth their time: they end elsewhere than refinement.
    if (best.plan && best.time > best.lower_bound * 1.005) {
      evict_options wider = part();
      const bool timed = options.run.work_limit == run_control::no_work_limit &&
                         options.run.time_limit != std::chrono::nanoseconds::max();
      wider.random_passes = timed ? std::numeric_limits<std::uint64_t>::max() : 200;
      if (timed) wider.run.time_limit = clock.left() / 6;
      take(evict(q, wider));
    }
    if (search_exactly(q, options, clock, best)) return finish();
    stopped = clock.poll();
    if (starts.empty() || stopped != stop_reason::none || best.time <= best.lower_bound * (1 + 1e-12)) return finish();

    refine_options refining;
    refining.lower_bound = best.lower_bound;  // perhaps more than at first
    refining.searches = options.searches;
    refining.run = options.run;
    refining.run.time_limit = clock.left();
    refine_result better = refine(q, starts, refining);
    clock.work(better.moves);
    stopped = better.stopped;
    accept(q, best, std::move(better.plan));
    return finish();
  }

 private:
  /// Runs `exact` for a part of the limits, which may raise the bound, find a better schedule, or settle the question:
  /// then it returns true.
  static bool search_exactly(const problem& q, const refined_options& options, run_clock& clock, solution& best) {
    const std::uint32_t operations = q.graph().num_operations;
    const bool small = operations <= small_step;
    if (operations > medium_step || (best.plan && best.time <= best.lower_bound * 1.001)) return false;
    exact_options searching;
    searching.start_from_heuristic = !small;
    searching.most_states = small ? 50000 : exact_options{}.most_states;
    searching.run.stop = options.run.stop;
    searching.run.time_limit = clock.left();
    if (!small) {
      if (options.run.work_limit != run_control::no_work_limit)
        searching.run.work_limit = std::max<std::uint64_t>(1, options.run.work_limit / 4);
      else if (options.run.time_limit != std::chrono::nanoseconds::max())
        searching.run.time_limit = clock.left() / 4;
      else
        searching.run.work_limit = refine_options{}.default_moves / 4;
    }
    solution s = exact(q, searching);
    best.lower_bound = std::max(best.lower_bound, s.lower_bound);
    if (s.plan) accept(q, best, std::move(*s.plan));
    if (s.status == solve_status::infeasible) best.message = std::move(s.message);
    return s.status == solve_status::infeasible || (best.plan && best.time <= best.lower_bound * (1 + 1e-12));
  }
};
inline constexpr refined_solver refined{};

}  // namespace remat
