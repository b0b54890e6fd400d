// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/within_memory.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/detail/run_to_end.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// Throws `bad_argument` if the problem has a link: for solvers that make no copies. Their bounds and proofs do not
/// hold where schedules may copy, so they would answer another question.
inline void require_no_link(const problem& p, std::string_view solver) {
  if (p.link())
    throw bad_argument(std::string(solver) +
                       ": the problem has a link to the host, but this solver makes no copies; solve "
                       "problem::without_link()");
}

/// Throws `bad_argument` unless all `starts` are legal. They may exceed the budgets.
inline void require_legal_starts(const problem& p, std::span<const schedule> starts, std::string_view solver) {
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const check_report r = check(p, starts[i]);
    if (!r.valid() && r.what != violation::over_budget && r.what != violation::over_host_budget)
      throw bad_argument(std::string(solver) + ": starts[" + std::to_string(i) + "] is illegal: " + r.message());
  }
}

/// The share of the limits that a solver's own method gets if its schedule is to be improved; less if the method ends
/// by itself.
inline constexpr double share_of_own_method = 0.5;

/// How the own method of a named solver ended.
struct method_end {
  method_end(stop_reason why = stop_reason::none, std::vector<schedule> more = {})  // NOLINT: implicit
      : stopped(why), starts(std::move(more)) {}
  stop_reason stopped;           ///< why it stopped early
  std::vector<schedule> starts;  ///< legal schedules to improve beside the best one; may exceed the budget
};

/// Notes in `best.statistics.own` what a solver's own method found, before others help: `own_time`, `own_peak_bytes`
/// and `own_by`, of the schedule that `best` holds. Nothing if it holds none, or if that has been noted before.
inline void record_own_method(solution& best) {
  if (!best.plan || best.statistics.own.find<double>("own_time")) return;
  best.statistics.own.set("own_time", best.time);
  best.statistics.own.set("own_peak_bytes", best.peak_bytes);
  best.statistics.own.set("own_by", best.by);
}

/// Runs the last part of a named solver, the improvement `by`, which there is: from `starts` and from the schedule of
/// `best`, with what is left of the limits of `clock`. Polls before it begins.
///
/// Notes first what the own method found (`record_own_method`). Does no more if `best` is proven to be optimal or the
/// budget to be infeasible. Schedules of `starts` over the budget are ignored. Returns why the solve stopped early.
template <class By>
stop_reason improve(const By& by, const problem& p, solution& best, std::vector<schedule> starts, run_clock& clock,
                    std::string_view solver) {
  record_own_method(best);
  const stop_reason stopped = clock.poll();
  if (stopped != stop_reason::none || best.status == solve_status::infeasible) return stopped;
  if (best.proven && best.is_within(0)) return stopped;
  return by(p, best, std::move(starts), clock, solver);
}

/// Calls `solve()`, a solver's call as a part of the solve of `clock`. If memory runs out in it, `clock` notes that,
/// and the answer is what the part has found, perhaps nothing: other parts may need less memory.
template <class Solve>
[[nodiscard]] solution solve_within_memory(run_clock& clock, Solve&& solve) {
  solution s;
  if (!within_memory([&] { s = solve(); })) s.out_of_memory = true;
  if (s.out_of_memory) clock.note_out_of_memory();
  return s;
}

/// Calls `take()`, which offers the schedule of the part `s` to `best` and leaves `s` as it is. If memory runs out in
/// it, the schedule is taken as the part gave it, checked for the same graph and budget; then the function throws
/// `std::bad_alloc`.
template <class Take>
void take_part(solution& best, solution& s, Take&& take) {
  if (within_memory(take)) return;
  if (s.plan && !(best.plan && best.time <= s.time)) {
    best.plan = std::move(s.plan);
    best.by = std::move(s.by);
    best.peak_bytes = s.peak_bytes;
    best.host_peak_bytes = s.host_peak_bytes;
    best.time = s.time;
    best.statistics.computes = s.statistics.computes;
    best.statistics.recomputes = s.statistics.recomputes;
    best.status = solve_status::feasible;
  }
  throw std::bad_alloc();
}

/// Runs a solver within the limits of `part`, the clock of a part. Its work counts there. If memory runs out, see
/// `solve_within_memory`. `more_seed` is added to the seed.
template <class Solver>
[[nodiscard]] solution solve_within(run_clock& part, const Solver& solver, const problem& p,
                                    typename Solver::options_type options, std::uint64_t more_seed = 0) {
  options.run = part.control();
  options.run.seed += more_seed;
  solution s = solve_within_memory(part, [&] { return solver(p, options); });
  part.work(s.statistics.work);
  return s;
}

/// Runs a solver as a part of a solve of the same problem, within `share` of what is left of the limits of `clock`. Its
/// work counts there, and its progress passes through, with its name as the stage. The whole takes its schedule.
template <class Solver>
[[nodiscard]] solution solve_part(run_clock& clock, double share, const Solver& solver, const problem& p,
                                  typename Solver::options_type options, std::uint64_t more_seed = 0) {
  run_clock part = clock.part(share, Solver::name);
  return solve_within(part, solver, p, std::move(options), more_seed);
}

/// The same for a problem that is not that of the whole: `run_clock::part_on_other_problem`.
template <class Solver>
[[nodiscard]] solution solve_other_problem(run_clock& clock, double share, const Solver& solver, const problem& other,
                                           typename Solver::options_type options) {
  run_clock part = clock.part_on_other_problem(share, Solver::name);
  return solve_within(part, solver, other, std::move(options));
}

/// Takes what a part has proven into the answer of the whole: its lower bound, and that nothing fits.
inline void take_bound(solution& best, const solution& part) {
  best.lower_bound = std::max(best.lower_bound, part.lower_bound);
  best.proven = best.proven || part.proven;
  if (part.status != solve_status::infeasible) return;
  best.message = part.message;
  best.obstacle = part.obstacle;
}

// A declaration of method/detail/cheap_start.hpp, whose definitions need this header: the definitions include it.
void take_cheap_start(const problem& p, solution& best, std::string_view solver, const run_control& run,
                      stop_reason stopped);

/// The differences between the frames of named solvers.
struct method_frame {
  bool opens_with_listed_order = true;  ///< the method is not run if the listed order settles the problem
  bool may_copy = false;                ///< the method makes copies; else a problem with a link is refused
};

/// The frame of every named solver: its clock, the listed order, the method within its limits, improvement, the proofs.
/// The answer is `best`, which must be new.
///
/// `method(clock, best)` returns a `method_end`, or why it stopped early. It is not run if a limit is spent already.
/// The improvement `by`, if there is one, follows (`improve`), and leaves the method `share_of_own_method`. A solve
/// that was cut off has at least what costs microseconds (`take_cheap_start`). If memory runs out, the answer is the
/// best schedule so far; without one, `std::bad_alloc` leaves the function. Throws `bad_argument` for a problem with a
/// link, unless the method copies.
template <class By, class Method>
void solve_by_own_method(const problem& p, solution& best, std::string_view solver, const run_control& run,
                         const By& by, method_frame frame, Method&& method) {
  if (!frame.may_copy) require_no_link(p, solver);
  run_clock clock(run, solver);
  best.lower_bound = p.graph().needed_time;
  clock.watch(best.time, best.lower_bound);
  run_to_end(p, best, clock, [&] {
    stop_reason stopped = stop_reason::none;
    if (!(frame.opens_with_listed_order && settled_by_listed_order(p, best, solver)) &&
        (stopped = clock.poll()) == stop_reason::none) {
      method_end end;
      {
        run_clock own = clock.part(by ? share_of_own_method : 1.0);
        end = method(own, best);
      }
      stopped = by ? improve(by, p, best, std::move(end.starts), clock, solver) : end.stopped;
    }
    take_cheap_start(p, best, solver, run, stopped);
    return stopped;
  });
}
template <class By, class Method>
[[nodiscard]] solution solve_by_own_method(const problem& p, std::string_view solver, const run_control& run,
                                           const By& by, method_frame frame, Method&& method) {
  solution best;
  solve_by_own_method(p, best, solver, run, by, frame, method);
  return best;
}

/// The method of a solver that makes copies, for a problem without a link: `otherwise`, with the limits of `clock`.
template <class Solver>
stop_reason solve_without_link(const problem& p, std::string_view solver, run_clock& clock, solution& best,
                               const Solver& otherwise, typename Solver::options_type options) {
  solution s = solve_part(clock, 1, otherwise, p, std::move(options));
  take_bound(best, s);
  if (s.status == solve_status::infeasible) best.status = s.status;
  if (s.plan) accept(p, best, std::move(*s.plan), by_part(solver, s.by));
  return clock.poll();
}

}  // namespace REMAT_NAMESPACE::detail

#include "remat/method/detail/cheap_start.hpp"  // last: its definitions need what stands above
