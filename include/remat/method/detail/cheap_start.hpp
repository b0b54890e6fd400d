// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/operation_chain.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/solution.hpp"

/// A schedule that costs next to nothing beside a search: a solve begins with it, or ends with it if it was cut off.
namespace REMAT_NAMESPACE::detail {

/// An upper bound on the number of slots with which the schedule of Revolve fits, or nothing if it fits with none: when
/// the last stage turns for the first time, that many inputs of different stages are kept. At most L − 1, since more
/// slots change nothing. Where stages are equal it is the largest number that fits. O(L log L) time.
[[nodiscard]] std::optional<std::uint32_t> most_slots(const chain_problem& p);

/// True if all stages are equal, but for the input of the chain.
[[nodiscard]] bool has_equal_stages(const chain& c);

/// The largest number of slots, at most `most`, with which the schedule of Revolve fits a chain of equal stages, or
/// nothing. Its peak is that of a chain of a few more stages than slots, on which it is looked for: O(slots) time for
/// each number of slots that is tried, which are a few.
[[nodiscard]] std::optional<std::uint32_t> slots_of_equal_stages(const chain_problem& p, std::uint32_t most);

/// A range for the number of slots on a chain of operations.
struct slot_range {
  std::uint32_t likely = 0;  ///< the most that leave memory for the runs when the last stage turns
  std::uint32_t most = 0;    ///< the kept inputs alone take the budget, if all are read again
};

/// The numbers of slots that may fit on a chain of operations. O(L log L) time.
[[nodiscard]] slot_range estimate_slots(const problem& p, const operation_chain& chain);

/// Looks for the largest number of slots, at most `range.most`, for which `fits(slots)` is true, and begins with the
/// likely one. Takes it that a number fits if a larger one does. O(log most) calls, and two or three if the likely
/// number is close.
template <class Fits>
std::optional<std::uint32_t> find_slots(slot_range range, const Fits& fits);

/// Offers the schedule of `revolve`, with the largest number of slots that `find_slots` finds, to `best`. Returns true
/// if it was taken. Polls nothing: O(log L) schedules, which take microseconds to milliseconds. Gives up when they have
/// 2²² steps and 64 for each stage together, with what has been found.
///
/// `clock`: of a solve under limits; then there may be more, as many as the rest of the limits pays for, at most 2²⁶,
/// and these count as work.
bool take_closed_form(const chain_problem& p, chain_solution& best, run_clock* clock = nullptr);

/// The same for a graph whose forward line is a chain of operations (`operation_chain`), with 16 steps for each stage;
/// nothing for others. `by` names the schedule.
bool take_closed_form(const problem& p, solution& best, std::string_view by, run_clock* clock = nullptr);

/// The end of a solve that was `stopped` early: offers `best` the listed order, if there is no schedule yet, and the
/// closed form (`take_closed_form`), as the parts "SOLVER/no_remat" and "SOLVER/revolve". So no solve that is cut off
/// has less than these. Nothing if the solve was not stopped, or is a part of another one (`run_control::is_part`), and
/// for a problem with a link, whose solvers begin with the listed order. O(operations + reads and writes) time on a
/// graph that is no chain.
void take_cheap_start(const problem& p, solution& best, std::string_view solver, const run_control& run,
                      stop_reason stopped);

template <class Fits>
std::optional<std::uint32_t> find_slots(slot_range range, const Fits& fits) {
  std::uint32_t slots = range.likely, too_many = range.most + 1;
  for (std::uint32_t step = 1;; step *= 2) {  // downwards, until one fits
    if (fits(slots)) break;
    if (slots == 0) return {};
    too_many = slots;
    slots -= std::min(slots, step);
  }
  for (std::uint32_t step = 1; slots == range.likely + step - 1 && slots + 1 < too_many; step *= 2) {  // upwards
    const std::uint32_t more = slots + std::min(step, too_many - 1 - slots);
    (fits(more) ? slots : too_many) = more;
  }
  while (slots + 1 < too_many) {
    const std::uint32_t middle = slots + (too_many - slots) / 2;
    (fits(middle) ? slots : too_many) = middle;
  }
  return slots;
}

}  // namespace REMAT_NAMESPACE::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/impl/cheap_start.hpp"
#endif
