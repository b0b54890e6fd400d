// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/memory/plan.hpp"

#include <algorithm>
#include <limits>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"
#include "remat/memory/detail/packing.hpp"

namespace REMAT_NAMESPACE {

namespace detail::plan {

[[noreturn]] inline void refuse_interval(std::size_t i, const std::string& reason) {
  throw bad_argument("interval " + std::to_string(i) + ": " + reason);
}

/// Validates the arguments of a plan.
inline void validate(std::span<const interval> intervals, std::int64_t alignment) {
  if (alignment < 1) throw bad_argument("alignment is " + std::to_string(alignment) + "; it must be at least 1");
  if (intervals.size() > component::begins) throw bad_argument("there are more than 2^31 intervals");
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  std::int64_t total = 0;
  for (std::size_t i = 0; i < intervals.size(); ++i) {
    const interval& x = intervals[i];
    if (x.size < 0) refuse_interval(i, "size is " + std::to_string(x.size) + "; it must not be negative");
    if (x.lower >= x.upper)
      refuse_interval(i,
                      "upper is " + std::to_string(x.upper) + "; it must be above lower, " + std::to_string(x.lower));
    if (x.size == 0) continue;
    const std::int64_t units = component::in_units(x.size, alignment);
    if (units > largest / alignment - total)
      refuse_interval(i, "the rounded sizes of all intervals together exceed 2^63 − 1");
    total += units;
  }
}

/// The limits of a search: those of the options, or `further_work`.
[[nodiscard]] inline run_control limits_of(run_control run) {
  if (!run.is_limited()) run.work_limit = memory_plan_options::further_work;
  return run;
}

/// The whole search: its components, its goal and its clock.
class plan_search {
 public:
  /// Divides the intervals. `capacity`, in bytes, is that of `fit_memory`; negative for `plan_memory`.
  plan_search(std::span<const interval> intervals, const memory_plan_options& options, std::int64_t capacity)
      : options_(options), limited_(options.run.is_limited()), clock_(limits_of(options.run)) {
    validate(intervals, options.alignment);
    components_ = divide_intervals(intervals, options.alignment);
    for (const packing_component& c : components_) load_ = std::max(load_, c.load);
    constexpr std::int64_t unlimited = packing_goal::unlimited;
    const bool fits = capacity >= 0;
    const std::int64_t enough = (fits ? capacity : options.target_bytes) / options.alignment;
    const std::int64_t least = std::max(load_, enough);
    const std::int64_t spare = std::min(load_ / memory_plan_options::near_bound, unlimited - load_);
    all_.seed = options.run.seed;
    all_.goal = {least, fits ? enough : unlimited, fits ? least : std::max(least, load_ + spare),
                 limited_ || fits ? run_control::no_work_limit : memory_plan_options::default_work};
  }

  void run() { pack_components(components_, clock_, all_); }

  /// True if it is proven that the intervals do not fit the capacity.
  [[nodiscard]] bool is_impossible() const { return is_any_above(components_, all_.goal.capacity); }

  [[nodiscard]] memory_plan result(std::size_t intervals) {
    memory_plan plan;
    plan.alignment = options_.alignment;
    plan.offsets.assign(intervals, 0);
    for (const packing_component& c : components_)
      for (std::size_t i = 0; i < c.size.size(); ++i) plan.offsets[c.id[i]] = c.offset[i] * options_.alignment;
    plan.lower_bound = load_ * options_.alignment;
    plan.optimal = true;
    plan.statistics.moves = all_.moves;
    plan.statistics.nodes = all_.nodes;
    if (!components_.empty()) {
      const packing_component& top = highest_component(components_);
      plan.arena_bytes = top.height * options_.alignment;
      plan.optimal = top.height == load_ || top.is_optimal();
      if (!plan.optimal) plan.statistics.stopped = clock_.poll();
      if (!plan.optimal && !limited_ && plan.statistics.stopped == stop_reason::none && top.height > all_.goal.least)
        plan.statistics.stopped = stop_reason::work;  // `default_work` was enough
    }
    plan.statistics.work = clock_.work_done();
    plan.statistics.seconds = clock_.seconds();
    return plan;
  }

 private:
  const memory_plan_options& options_;
  bool limited_;
  run_clock clock_;
  std::vector<packing_component> components_;
  shared_search all_{};
  std::int64_t load_ = 0;
};

}  // namespace detail::plan

REMAT_INLINE memory_plan plan_memory(std::span<const interval> intervals, const memory_plan_options& options) {
  if (options.target_bytes < 0)
    throw bad_argument("target_bytes is " + std::to_string(options.target_bytes) + "; expected at least 0");
  detail::plan::plan_search search(intervals, options, -1);
  search.run();
  return search.result(intervals.size());
}

REMAT_INLINE memory_plan plan_memory(const lifetimes& lives, const memory_plan_options& options) {
  return plan_memory(intervals_of(lives), options);
}

REMAT_INLINE memory_fit fit_memory(std::span<const interval> intervals, std::int64_t capacity,
                                   const memory_plan_options& options) {
  if (capacity < 0) throw bad_argument("capacity is " + std::to_string(capacity) + " bytes; it must not be negative");
  detail::plan::plan_search search(intervals, options, capacity);
  search.run();
  memory_fit fit{memory_fit_status::unknown, search.result(intervals.size())};
  if (search.is_impossible()) fit.status = memory_fit_status::impossible;
  if (fit.plan.arena_bytes <= capacity) fit.status = memory_fit_status::fits;
  return fit;
}

}  // namespace REMAT_NAMESPACE
