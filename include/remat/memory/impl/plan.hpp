// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/memory/plan.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <string>

#include "remat/core/error.hpp"
#include "remat/core/linkage.hpp"
#include "remat/memory/component.hpp"
#include "remat/memory/exhaust.hpp"
#include "remat/memory/skyline.hpp"
#include "remat/memory/squeeze.hpp"

namespace remat {

namespace detail::memory_planning {

/// When the search may end. Heights are in units of the alignment.
struct packing_goal {
  std::int64_t least;        // a packing of this height ends the search
  std::int64_t near_enough;  // a packing of this height ends it after `work`
  std::uint64_t work;
};

/// Improves one component until it reaches the goal, is proven the lowest, or the clock says to stop.
class component_search {
 public:
  component_search(component& c, const packing_goal& goal, run_clock& clock, std::uint64_t seed,
                   memory_plan_statistics& statistics)
      : c_(c), goal_(goal), clock_(clock), seed_(seed), statistics_(statistics) {}

  void run() {
    if (c_.blocks() <= small) exhaust(first_nodes);
    std::uint64_t nodes = first_nodes;
    for (std::uint64_t sweep = 0; !is_done(); ++sweep) {
      const std::uint64_t doubled = std::min<std::uint64_t>(sweep, 20);
      const std::uint64_t work = (sweep == 0 ? std::uint64_t{4'000'000} : std::uint64_t{16'000'000}) << doubled / 2;
      if (is_far() && goal_.near_enough > c_.load) {  // far above the bound, packing anew helps most
        repack(c_, goal_.near_enough, sweep % 2 == 0 ? push_policy::never : push_policy::sometimes, work, clock_,
               seed_ + sweep, statistics_.moves);
        if (is_far() && sweep % 4 != 0) continue;
      }
      squeeze_stepwise(sweep, doubled, work);
      if (is_done()) return;
      if (c_.blocks() <= medium) exhaust(nodes);
      nodes *= 2;
    }
  }

 private:
  static constexpr std::uint32_t small = 16, medium = 128;  // blocks that are worth an exhaustive search: first, later
  static constexpr std::uint64_t first_nodes = 20'000;

  [[nodiscard]] bool is_far() const { return c_.height > goal_.near_enough; }
  [[nodiscard]] bool is_done() const {
    return c_.height <= goal_.least || c_.optimal || clock_.should_stop() ||
           (!is_far() && clock_.work_done() >= goal_.work);
  }

  void exhaust(std::uint64_t nodes) {
    if (is_done()) return;
    exhaustive_search search(c_, clock_);
    c_.optimal = search(goal_.least, nodes);
    statistics_.nodes += search.nodes();
  }

  /// Squeezes the packing by halves of the way to the least height, which is quicker than the least height at once; for
  /// the least height itself, every move pushes.
  void squeeze_stepwise(std::uint64_t sweep, std::uint64_t doubled, std::uint64_t most_work) {
    squeezer squeeze(c_, clock_, seed_ + sweep);
    const auto fits = [&](std::int64_t target, push_policy policy) {
      const std::uint64_t work = std::min(squeeze.push_work() << (6 + doubled),
                                          is_far() ? most_work : goal_.work - std::min(goal_.work, clock_.work_done()));
      std::vector<std::int64_t> offset = c_.offset;
      if (!squeeze(target, offset, policy, work)) return false;
      c_.keep_if_lower(offset);
      return true;
    };
    const auto is_close = [&] { return c_.height - goal_.least <= goal_.least / 64; };
    if (is_close()) fits(goal_.least, push_policy::always);
    std::int64_t failed = goal_.least;
    while (!is_done() && c_.height - failed > (is_close() ? goal_.least / 1024 : goal_.least / 256)) {
      const std::int64_t target = failed + (c_.height - failed) / 2;
      if (!fits(target, push_policy::sometimes) && !fits(target, push_policy::always)) failed = target;
    }
    if (!is_done()) fits(goal_.least, push_policy::always);
    statistics_.moves += squeeze.moves();
  }

  component& c_;
  const packing_goal& goal_;
  run_clock& clock_;
  std::uint64_t seed_;
  memory_plan_statistics& statistics_;
};

/// Packs a component by the heuristics that make no moves; all after the first only while the clock permits.
inline void pack_first(component& c, std::int64_t low_enough, run_clock& clock) {
  constexpr std::uint32_t few = 4096;  // blocks for which the quadratic time of first fit pays
  skyline_packer pack(c);
  for (const preference by : {preference::lifetime, preference::area, preference::size}) {
    if (!c.offset.empty() && (c.height <= low_enough || clock.should_stop())) break;
    const std::vector<std::uint32_t> rank = ranks(c, by);
    std::vector<std::int64_t> offset = pack(rank);
    c.keep_if_lower(offset);
    clock.work(16 * static_cast<std::uint64_t>(c.blocks()));
    if (by == preference::lifetime || c.height <= low_enough || c.blocks() > few || clock.should_stop()) continue;
    offset = first_fit(c, rank);
    c.keep_if_lower(offset);
    clock.work(static_cast<std::uint64_t>(c.blocks()) * c.blocks() / 4);
  }
}

/// The highest component: the arena is as high as it. Precondition: `parts` is not empty.
[[nodiscard]] inline component& highest(std::vector<component>& parts) {
  return *std::max_element(parts.begin(), parts.end(),
                           [](const component& a, const component& b) { return a.height < b.height; });
}

}  // namespace detail::memory_planning

REMAT_INLINE memory_plan plan_memory(std::span<const interval> intervals, const memory_plan_options& options) {
  namespace planning = detail::memory_planning;
  if (options.enough < 0)
    throw bad_argument("enough is " + std::to_string(options.enough) + " bytes; it must not be negative");
  run_control control = options.run;
  const bool limited =
      control.work_limit != run_control::no_work_limit || control.time_limit != std::chrono::nanoseconds::max();
  if (!limited) control.work_limit = memory_plan_options::further_work;
  run_clock clock(control);
  memory_plan plan;
  plan.alignment = options.alignment;
  std::vector<planning::component> parts = planning::divide(intervals, options.alignment);
  std::int64_t bound = 0;
  for (const planning::component& c : parts) bound = std::max(bound, c.load);

  const std::int64_t low_enough = std::max(bound, options.enough / options.alignment);
  const std::int64_t spare =
      std::min(bound / memory_plan_options::near_enough, std::numeric_limits<std::int64_t>::max() - bound);
  const planning::packing_goal goal{low_enough, std::max(low_enough, bound + spare),
                                    limited ? run_control::no_work_limit : memory_plan_options::default_work};
  for (planning::component& c : parts) planning::pack_first(c, low_enough, clock);
  while (!parts.empty()) {
    planning::component& c = planning::highest(parts);
    if (c.height <= low_enough || c.optimal || clock.should_stop()) break;
    if (c.height <= goal.near_enough && clock.work_done() >= goal.work) break;
    planning::component_search(c, goal, clock, options.run.seed, plan.statistics).run();
  }

  plan.offsets.assign(intervals.size(), 0);
  for (const planning::component& c : parts)
    for (std::size_t i = 0; i < c.size.size(); ++i) plan.offsets[c.id[i]] = c.offset[i] * options.alignment;
  plan.lower_bound = bound * options.alignment;
  plan.optimal = true;
  if (!parts.empty()) {
    const planning::component& top = planning::highest(parts);
    plan.arena_bytes = top.height * options.alignment;
    plan.optimal = top.height == bound || top.optimal;
    if (!plan.optimal) plan.statistics.stopped = clock.poll();
    if (!plan.optimal && !limited && plan.statistics.stopped == stop_reason::none && top.height > low_enough)
      plan.statistics.stopped = stop_reason::work;  // `default_work` was enough
  }
  plan.statistics.work = clock.work_done();
  plan.statistics.seconds = clock.seconds();
  return plan;
}

REMAT_INLINE memory_plan plan_memory(const lifetimes& lives, const memory_plan_options& options) {
  return plan_memory(intervals_of(lives), options);
}

}  // namespace remat
