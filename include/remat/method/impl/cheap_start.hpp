// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/detail/cheap_start.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/binomial_steps.hpp"
#include "remat/chain/detail/operation_chain.hpp"
#include "remat/core/detail/binomial.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/problem/detail/listed_order.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE::detail {

namespace cheap_start {

/// How many of `sizes`, the smallest first, `room` has place for.
[[nodiscard]] inline std::uint32_t count_fitting(std::vector<std::int64_t> sizes, std::int64_t room) {
  std::sort(sizes.begin(), sizes.end());
  std::uint32_t count = 0;
  while (count < sizes.size() && sizes[count] <= room) room -= sizes[count++];
  return count;
}

/// The steps that all schedules of one search for a closed form may have together.
class effort {
 public:
  /// An effort with `for_each_stage` more for each stage of the chain, and, under limits, with the steps that the rest
  /// of the limits of `clock` pays for, if each takes `of_step`. Null: none beside.
  effort(std::uint32_t length, std::uint64_t for_each_stage, std::chrono::nanoseconds of_step, run_clock* clock)
      : length_(length), free_((std::uint64_t{1} << 22) + for_each_stage * length), left_(free_), clock_(clock) {
    if (clock == nullptr || !clock->control().is_limited()) return;
    std::uint64_t paid = std::min(most_paid, clock->work_left() / work_of::visit);
    if (clock->control().has_time_limit()) paid = std::min(paid, static_cast<std::uint64_t>(clock->left() / of_step));
    left_ += paid;
  }

  /// Counts the schedule for so many slots. False if that is too much; then everything is from now on.
  [[nodiscard]] bool spend(std::uint32_t slots) {
    const std::uint64_t steps = binomial::advances(length_, slots) + 2 * std::uint64_t{length_};
    const bool enough = steps <= left_;
    left_ = enough ? left_ - steps : 0;
    if (!enough) return false;
    const std::uint64_t of_free = std::min(free_, steps);
    free_ -= of_free;
    if (clock_ != nullptr) clock_->work((steps - of_free) * work_of::visit);
    return true;
  }

 private:
  static constexpr std::uint64_t most_paid = std::uint64_t{1} << 26;  // steps; a schedule of so many is half a gigabyte

  std::uint32_t length_;
  std::uint64_t free_, left_;
  run_clock* clock_;
};

}  // namespace cheap_start

REMAT_INLINE bool has_equal_stages(const chain& c) {
  return std::all_of(c.stages().begin(), c.stages().end(), [&](const chain_stage& s) { return s == c.stage(1); });
}

REMAT_INLINE std::optional<std::uint32_t> slots_of_equal_stages(const chain_problem& p, std::uint32_t most) {
  const chain& c = p.stages();
  const std::size_t n = c.length();
  for (std::uint32_t slots = most + 1; slots-- > 0;) {
    const std::size_t shorter = std::min(n, slots + std::size_t{3});
    const chain_problem sample(chain("", c.input_bytes(), std::vector<chain_stage>(shorter, c.stage(1))), p.budget());
    const auto steps = binomial_steps(static_cast<std::uint32_t>(shorter), slots);
    if (simulate(sample, steps).peak_bytes <= p.budget()) return slots;
  }
  return {};
}

REMAT_INLINE std::optional<std::uint32_t> most_slots(const chain_problem& p) {
  const chain& c = p.stages();
  const std::size_t n = c.length();
  const chain_stage& last = c.stage(n);
  const std::int64_t turn = last.saved_bytes + std::max({last.forward_overhead_bytes, last.output_bytes,
                                                         c.activation_bytes(n - 1) + last.backward_overhead_bytes});
  const std::int64_t room = p.budget() - c.input_bytes() - turn;
  if (room < 0) return {};
  std::vector<std::int64_t> kept;
  for (std::size_t i = 1; i < n; ++i) kept.push_back(c.activation_bytes(i));
  const std::uint32_t most = cheap_start::count_fitting(std::move(kept), room);
  return has_equal_stages(c) ? slots_of_equal_stages(p, most) : most;
}

REMAT_INLINE slot_range estimate_slots(const problem& p, const operation_chain& chain) {
  const flat_graph& g = p.graph();
  const std::uint32_t n = chain.length();
  std::vector<std::int64_t> kept;
  for (std::uint32_t s = 1; s < n; ++s) kept.push_back(chain.crossing_bytes(s));
  std::int64_t turn = 0;
  for (const std::span<const std::uint32_t> run : {chain.forward(n), chain.backward(n)})
    for (const std::uint32_t o : run) turn = std::max(turn, working_set_bytes(g, o));
  turn -= std::min(turn, chain.crossing_bytes(n - 1));  // the input of the last stage may be kept
  return {cheap_start::count_fitting(kept, p.budget() - turn), cheap_start::count_fitting(kept, p.budget())};
}

REMAT_INLINE bool take_closed_form(const chain_problem& p, chain_solution& best, run_clock* clock) {
  const std::optional<std::uint32_t> most = most_slots(p);
  if (!most) return false;
  const auto length = static_cast<std::uint32_t>(p.stages().length());
  cheap_start::effort effort(length, 64, std::chrono::nanoseconds(15), clock);
  chain_solution found;
  find_slots({*most, *most}, [&](std::uint32_t slots) {
    chain_solution one;
    if (!effort.spend(slots) || !accept(p, one, binomial_steps(length, slots))) return false;
    found = std::move(one);
    return true;
  });
  return keep_if_better(best, std::move(found));
}

REMAT_INLINE bool take_closed_form(const problem& p, solution& best, std::string_view by, run_clock* clock) {
  if (p.link()) return false;
  const flat_graph& g = p.graph();
  const std::optional<operation_chain> chain = operation_chain::find(g);
  if (!chain) return false;
  cheap_start::effort effort(chain->length(), 16, std::chrono::nanoseconds(200), clock);
  solution found;
  find_slots(estimate_slots(p, *chain), [&](std::uint32_t slots) {
    if (!effort.spend(slots)) return false;
    solution one;
    schedule plan = schedule_computes(g, chain->expand(g, binomial_steps(chain->length(), slots)));
    if (!accept(p, one, std::move(plan), by)) return false;
    found = std::move(one);
    return true;
  });
  return found.plan && accept(p, best, std::move(*found.plan), by);
}

REMAT_INLINE void take_cheap_start(const problem& p, solution& best, std::string_view solver, const run_control& run,
                                   stop_reason stopped) {
  if (stopped == stop_reason::none || run.is_part || p.link() || best.status == solve_status::infeasible) return;
  if (!best.plan && settled_by_listed_order(p, best, solver)) return;
  take_closed_form(p, best, by_part(solver, "revolve"));
}

}  // namespace REMAT_NAMESPACE::detail
