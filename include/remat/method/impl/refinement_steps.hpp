// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <utility>

#include "remat/bound/turnaround.hpp"
#include "remat/core/run.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/exact.hpp"
#include "remat/method/refined.hpp"
#include "remat/portfolio/detail/annealing_part.hpp"
#include "remat/portfolio/detail/chain_bound_part.hpp"
#include "remat/portfolio/detail/driver.hpp"
#include "remat/portfolio/detail/exact_part.hpp"
#include "remat/portfolio/detail/guided_eviction.hpp"
#include "remat/portfolio/detail/joint_bound_part.hpp"
#include "remat/portfolio/detail/part_setting.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/portfolio/detail/random_eviction_part.hpp"
#include "remat/portfolio/detail/shares.hpp"
#include "remat/portfolio/detail/split_part.hpp"
#include "remat/portfolio/detail/windows_part.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// The steps of `refined`, on a pool. They may be taken in turns, each within the limits of a clock: `open`, then
/// `go_on` any number of times; the pool may be told more in between.
class refinement_steps {
 public:
  /// The aim of the steps: schedules and a bound, or schedules alone.
  enum class aim : std::uint8_t { schedules_and_bound, schedules };

  /// `known` and `options` must outlive the object. The limits of `options` are not used.
  refinement_steps(pool& known, const refined_options& options, aim a = aim::schedules_and_bound)
      : pool_(known),
        options_(options),
        analysis_(known.instance()),
        setting_{known.instance(), refined_solver::name, options.branch_nodes,
                 options.searches, options.gap,          analysis_},
        driver_(known, options.gap) {
    add_parts(a);
  }
  refinement_steps(const refinement_steps&) = delete;  // the parts refer to it
  refinement_steps& operator=(const refinement_steps&) = delete;

  /// Takes all steps within the limits of `options`, in the frame of named solvers.
  [[nodiscard]] static solution solve(const problem& p, const refined_options& options, aim a) {
    pool known(p);
    solve_by_own_method(p, known.answer(), refined_solver::name, options.run, improvement{},
                        {.opens_with_listed_order = false}, [&](run_clock& clock, solution&) -> stop_reason {
                          refinement_steps steps(known, options, a);
                          const stop_reason stopped = steps.open(clock);
                          return stopped == stop_reason::none ? steps.go_on(clock) : stopped;
                        });
    return std::move(known.answer());
  }

  /// The driver of `go_on`, to which other parts may be added.
  [[nodiscard]] driver& parts() noexcept { return driver_; }

  /// The bound, the exact search of a small graph, eviction, and a first refinement. Returns why it stopped early.
  /// Precondition: the schedules to start from are legal; those over the budget are ignored.
  stop_reason open(run_clock& clock) {
    if (const stop_reason stopped = clock.poll(); stopped != stop_reason::none) return stopped;
    if (prove_bound(clock) || (is_small() && search_small(clock))) return stop_reason::none;
    for (const schedule& start : options_.starts) pool_.put(start, setting_.name_of("start"));
    guided_eviction(setting_, pool_, bound_, clock).run();
    if (clock.control().is_limited() && !clock.should_stop() && !is_settled()) {
      run_clock first = clock.part(opening_shares::refinement);
      part_slice slice = first_annealing_.run(pool_.view(), first);
      pool_.put(slice.found);
    }
    return clock.poll();
  }

  /// Lets the parts race for better schedules and bounds, with all that is left. Returns why it stopped early.
  /// `opening`: the clock of what came before, if that is another one.
  stop_reason go_on(run_clock& clock, const run_clock* opening = nullptr) {
    const stop_reason stopped = clock.poll();
    if (stopped != stop_reason::none || is_settled()) return stopped;
    return driver_.run(clock, opening != nullptr ? *opening : clock);
  }

 private:
  [[nodiscard]] bool is_small() const noexcept { return setting_.size() <= graph_sizes::exact_first; }
  [[nodiscard]] bool is_settled() const { return pool_.is_settled(options_.gap); }

  /// The turnaround bound, with branch and bound. True: no schedule is within the budget.
  bool prove_bound(run_clock& clock) {
    run_clock own = clock.part(opening_shares::bound);
    turnaround_options proving;
    proving.branch_nodes = options_.branch_nodes;
    proving.run = own.control();
    bound_ = analysis_.bound(pool_.instance().budget(), proving);
    count_flows(bound_.flows, setting_.size(), own);
    return pool_.put_moment(bound_);
  }

  /// Runs `exact` on a small graph. True: the problem is solved.
  bool search_small(run_clock& clock) {
    if (pool_.best().is_within(part_gaps::exact)) return false;
    run_clock own = clock.part(opening_shares::exact, exact_solver::name);
    solution s = run_exact(setting_, pool_.instance(), own, {.max_states = 50000}, {});
    pool_.put(s);
    return is_settled();
  }

  /// The list of parts: the order is that of their first slices.
  void add_parts(aim a) {
    const std::uint32_t size = setting_.size();
    driver_.add(chain_bound_part(setting_));  // a split is made at its moments
    if (a != aim::schedules && !is_small() && size <= graph_sizes::joint_moments)
      driver_.add(joint_bound_part(setting_));
    if (!is_small() && size <= graph_sizes::exact) driver_.add(exact_part(setting_));
    if (!is_small() && options_.splits > 0) driver_.add(split_part(setting_, side_solver_of(options_)));
    driver_.add(random_eviction_part(setting_));
    if (size <= graph_sizes::windows) driver_.add(windows_part(setting_));
    first_annealing_ = annealing_part(setting_);
    driver_.add(first_annealing_);
  }

  /// These steps with a split less. Nobody asks for the bound of a side.
  [[nodiscard]] static side_solver side_solver_of(const refined_options& options) {
    refined_options solving;
    solving.branch_nodes = options.branch_nodes;
    solving.searches = options.searches;
    solving.gap = options.gap;
    solving.splits = options.splits - 1;
    return [solving](const problem& side, const run_control& run) {
      refined_options own = solving;
      own.run = run;
      return solve(side, own, aim::schedules);
    };
  }

  pool& pool_;
  const refined_options& options_;
  turnaround_analysis analysis_;
  const part_setting setting_;
  turnaround_result bound_;         // the bound at one moment
  portfolio_part first_annealing_;  // the same part as in the list, so its seeds go on
  driver driver_;
};

}  // namespace REMAT_NAMESPACE::detail
