// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE {

/// The name of a part of a solver, for `solution::by`: "solver/part".
[[nodiscard]] inline std::string by_part(std::string_view solver, std::string_view part) {
  return std::string(solver) + "/" + std::string(part);
}

/// Makes `plan` the answer of `best` if it is better: it takes less time than the plan of `best` or, for equal time,
/// has a lower peak. Returns true if it did. `report` is the exact checker's report of `plan`, and valid. `by` names
/// the part that found it (`solution::by`).
bool keep_if_better(solution& best, schedule plan, const check_report& report, std::string_view by);

/// The result of `accept`.
struct acceptance {
  bool taken = false;     ///< the schedule is the answer now
  check_report report{};  ///< the exact checker's report

  /// True if the schedule was taken.
  constexpr operator bool() const noexcept { return taken; }  // NOLINT: callers ask "was it taken?"
};

/// Checks a solver's schedule with the exact checker, once, and takes it if it is better. Every schedule of a solution
/// was accepted in this way.
///
/// `plan` is taken if it is legal, within the budget of `p`, and better than the plan of `best` (`keep_if_better`).
/// `by` names the part that found it (`solution::by`). A schedule over a budget is refused. Throws `internal_error`
/// for an illegal schedule: the solver has a defect. O(steps + their reads and writes).
acceptance accept(const problem& p, solution& best, schedule plan, std::string_view by);

/// Gives `s` a proven lower bound: the bound that `p` knows (`problem::known_bound`), or else the turnaround bound. If
/// `p` has a link, that bound, which knows no copies, does not hold: then it is the time of one run of each needed
/// operation, and only working sets and final outputs prove that nothing fits.
///
/// Returns true if the bound proves that no schedule is within the budget; `s` then says `infeasible` and why. A second
/// call for the same `s` is free; the first one takes some maximum flows on the graph, within the time limit and stop
/// token of `run`.
bool prove(const problem& p, solution& s, const run_control& run = {});

/// Tries to solve a problem without a search. Returns true if the listed order fits the budget, which is optimal, or if
/// an operation or the end of the training step alone needs more than the budget, which is infeasible. `best` then
/// holds the answer, found by `no_remat` as a part of `solver`. O(reads and writes) time.
bool settled_by_listed_order(const problem& p, solution& best, std::string_view solver);

/// Leaves out a lower bound that the plan of `s` refutes, since the plan takes less time: a defect of the library,
/// which must not cost the answer. The bound is then `needed_time`, the time of the needed operations, and the message
/// asks for a report. Returns true if the bound was refuted. O(1) time.
bool drop_refuted_bound(solution& s, double needed_time);

/// Ends a solve: proves the lower bound, if that has not been done (`prove`), and sets the status: `optimal` if the
/// time meets the bound, otherwise how the solve ended (`stopped`). A bound that the plan refutes is left out
/// (`drop_refuted_bound`).
///
/// The bound gets at least 50 ms, even if the solver's time is spent. A stop request ends the proof at once; the bound
/// is then weaker, but still proven. Throws `std::bad_alloc` if memory ran out in a part
/// (`run_clock::is_out_of_memory`) and nothing is found or proven.
void conclude(const problem& p, solution& s, const run_clock& clock, stop_reason stopped);

/// Ends a solve in which memory ran out; to be called by the handler of `std::bad_alloc`. The plan of `s` stays, and
/// `s` says that memory ran out. Passes the exception on if there is no plan. Allocates nothing.
void conclude_out_of_memory(solution& s, const run_clock& clock);

/// Takes `plan` into `best` if it is within the budget and faster than what `best` holds (of equal time: lower peak).
/// The only way from a solver's steps to a solution: through the exact simulation. Returns true if `plan` was taken.
/// Throws `internal_error` for a plan that is not legal, which is a defect of the solver. O(steps + L) time.
bool accept(const chain_problem& p, chain_solution& best, std::vector<chain_step> plan);

/// Moves the schedule of `found`, which `accept` has checked, to `best` if it is faster than the plan of `best`, or of
/// equal time and lower peak. A long schedule is neither copied nor simulated again. Returns true if it was taken; the
/// figures of `found` stay.
bool keep_if_better(chain_solution& best, chain_solution&& found);

/// The bytes that every schedule of the chain needs: those of the widest forward that saves, or of the widest backward.
/// O(stages and options) time.
[[nodiscard]] std::int64_t largest_working_set(const chain_problem& p);

/// A proven lower bound on the time of any schedule of the chain's actions. Every stage runs once, and the k-th run,
/// for k > 1, is left out for stages of number N(k − 1) at most, or of that sum of saved bytes, whichever says more:
/// those that cost most. N is that of `detail::run_layers`, for inputs of the least output. O(L log L + levels · r)
/// time, where r is the number of runs that the bound counts for some stage, and levels, at most L + 1, that of inputs
/// that fit.
[[nodiscard]] double repetition_bound(const chain_problem& p);

/// Gives `s` a proven lower bound: `repetition_bound`, which is at least the fastest forward and backward of each stage
/// once; infinite if the budget is below `largest_working_set`, and then `s` says `infeasible` and why. Returns true if
/// it does. `run` is not used, since that takes no time to speak of.
bool prove(const chain_problem& p, chain_solution& s, const run_control& run = {});

/// Fills in how a solve ended: the proven lower bound, `optimal` if the time meets it, else why the solve stopped. A
/// bound that the plan refutes is left out, as that of a `solution`.
void conclude(const chain_problem& p, chain_solution& s, const run_clock& clock, stop_reason stopped);

/// Ends a solve in which memory ran out, as that of a `solution`.
void conclude_out_of_memory(chain_solution& s, const run_clock& clock);

/// The steps of the baseline: every forward with everything kept, then every backward. O(L) time.
[[nodiscard]] std::vector<chain_step> store_all_steps(const chain& c);

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/solver/impl/accept.hpp"
#endif
