// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "remat/bound/offload.hpp"
#include "remat/core/detail/within_memory.hpp"
#include "remat/core/run.hpp"
#include "remat/method/detail/copy_annealing.hpp"
#include "remat/method/detail/copy_floor.hpp"
#include "remat/method/detail/copy_states.hpp"
#include "remat/method/detail/copying_eviction.hpp"
#include "remat/method/evict.hpp"
#include "remat/portfolio/detail/driver.hpp"
#include "remat/portfolio/detail/part.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/portfolio/detail/shares.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/solution.hpp"

/// The parts that solve a problem with a link, by recomputation and copies. They take turns (`driver::run_in_turn`).
namespace REMAT_NAMESPACE::detail {

/// The common setting of the parts that copy. It must outlive them. One part writes what the later ones read.
struct copy_setting {
  const problem& instance;
  std::string_view whole{};             ///< the solver whose parts they are, in `solution::by`
  double gap = 0;                       ///< a schedule within (1 + gap) × the bound is enough
  copy_states states;                   ///< the fastest schedules with copies; annealing starts from them
  const std::vector<schedule>& starts;  ///< schedules to start from; earlier parts may add to them
  offload_bound_result floor{};         ///< the bound, whose choice guides the search
};

/// A part that takes one turn, of `share` of what is left of the limits. `improve(clock, best)` makes the best schedule
/// and bound of the pool better. If memory runs out in it, its findings stay.
template <class Improve>
[[nodiscard]] portfolio_part turn(std::string_view name, double share, Improve improve) {
  portfolio_part part;
  part.name = name;
  part.first_share = share;
  part.run = [improve = std::move(improve)](const pool_view& now, run_clock& clock) {
    part_slice slice;
    slice.found = now.best;
    slice.ended = true;
    run_clock own = clock.part(1);  // it ends before `slice` moves
    own.watch(slice.found.time, slice.found.lower_bound);
    if (!within_memory([&] { improve(own, slice.found); })) own.note_out_of_memory();
    return slice;
  };
  return part;
}

/// No recomputation: the listed order, with copies of what does not fit.
[[nodiscard]] inline portfolio_part listed_order_part(copy_setting& s) {
  return turn("listed order", 1, [&s](run_clock& clock, solution& best) {
    copy_placement(s.instance, clock, best, s.whole, s.states).place_listed_order();
  });
}

/// The bound on schedules with copies.
[[nodiscard]] inline portfolio_part copy_bound_part(copy_setting& s) {
  return turn("bound", floor_share, [&s](run_clock& clock, solution& best) {
    s.floor = floor_within(s.instance, clock, 1, floor_branch_nodes(s.instance));
    take_floor(s.instance, s.floor, clock, best);
  });
}

/// The schedules to start from, with copies.
[[nodiscard]] inline portfolio_part starts_part(copy_setting& s) {
  return turn("starts", 1, [&s](run_clock& clock, solution& best) {
    copy_placement placement(s.instance, clock, best, s.whole, s.states);
    for (const schedule& start : s.starts) placement.place(computes_of(start), {}, "start");
  });
}

/// Eviction that drops or copies.
[[nodiscard]] inline portfolio_part copying_eviction_part(copy_setting& s) {
  return turn(evict_solver::name, link_shares::eviction, [&s](run_clock& clock, solution& best) {
    copy_placement placement(s.instance, clock, best, s.whole, s.states);
    run_copying_eviction(s.instance, s.floor, {}, clock, best, placement, evict_solver::name);
  });
}

/// The closing part: refinement of recomputation and copies together, with all that is left.
[[nodiscard]] inline portfolio_part copy_annealing_part(copy_setting& s) {
  return turn("copies", 1, [&s](run_clock& clock, solution& best) {
    anneal_copies(s.instance, s.states.states(), s.gap, clock, best, s.whole);
  });
}

}  // namespace REMAT_NAMESPACE::detail
