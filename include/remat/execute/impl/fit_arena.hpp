// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/execute/fit_arena.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/linkage.hpp"
#include "remat/core/rounding.hpp"
#include "remat/memory/check.hpp"
#include "remat/memory/interval.hpp"
#include "remat/problem/flat_graph.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"

namespace remat {

namespace detail::arena_fitting {

/// `bytes` rounded up to a multiple of `alignment`.
[[nodiscard]] inline std::int64_t rounded_up(std::int64_t bytes, std::int64_t alignment) {
  const std::int64_t rest = bytes % alignment;
  if (rest == 0) return bytes;
  if (bytes > std::numeric_limits<std::int64_t>::max() - (alignment - rest))
    throw bad_argument("a size of " + std::to_string(bytes) + " bytes, rounded up to a multiple of " +
                       std::to_string(alignment) + ", exceeds 2^63 − 1");
  return bytes + (alignment - rest);
}

/// One call of `fit_arena_by`: the solves and packings, and what is known of peak budgets.
class arena_search {
 public:
  using solve_function = std::function<solution(const problem&, const run_control&)>;

  arena_search(const problem& p, const solve_function& solve, const fit_arena_options& options)
      : plain_(p.with_budget(problem::unlimited)),
        rounded_(arena_problem(p, options.memory.alignment, options.elsewhere)),
        solve_(solve),
        options_(options),
        clock_(options.run),
        alignment_(options.memory.alignment),
        most_(options.budget == problem::unlimited
                  ? problem::unlimited
                  : options.budget / options.memory.alignment * options.memory.alignment) {}

  [[nodiscard]] arena_solution run() {
    std::optional<std::int64_t> budget = most_;
    while (budget && best_.solves < options_.solves && (best_.solves == 0 || !clock_.should_stop())) {
      attempt(*budget);
      budget = next_budget(*budget);
    }
    finish();
    return std::move(best_);
  }

 private:
  static constexpr double first_share = 0.85;  // of the limits, for the first solve
  static constexpr std::uint64_t more_packing = 20 * memory_plan_options::default_work;

  /// How a solve ended.
  enum class outcome : std::uint8_t { no_schedule, too_large, no_faster, fits };

  /// Solves within `budget` for the peak, packs the schedule, and notes the result.
  void attempt(std::int64_t budget) {
    run_control part = clock_.part(best_.solves == 0 ? first_share : 0.5);
    part.on_progress = options_.run.on_progress;
    solution answer = solve_(rounded_.with_budget(budget), part);
    clock_.work(answer.statistics.work);
    if (best_.solves++ == 0) static_cast<solution&>(best_) = without_plan(answer);
    if (!best_.memory) best_.solved_budget = budget;
    last_ = take(budget, std::move(answer));
    switch (last_) {
      case outcome::no_schedule:
        none_ = std::max(none_, budget);
        break;
      case outcome::too_large:
        ++failures_;
        too_large_ = std::min(too_large_, budget);
        break;
      case outcome::no_faster:
      case outcome::fits:
        fitted_ = std::max(fitted_, budget);
    }
  }

  /// What the answer of the first solve says, whether or not its schedule fits.
  [[nodiscard]] static solution without_plan(const solution& answer) {
    solution out;
    out.status = answer.status;
    out.lower_bound = answer.lower_bound;
    out.proven = answer.proven;
    out.obstacle = answer.obstacle;
    out.message = answer.message;
    return out;
  }

  /// Makes the schedule of `answer` the best one, if it is faster and its arena is within the budget.
  [[nodiscard]] outcome take(std::int64_t budget, solution answer) {
    if (!answer.plan) return outcome::no_schedule;
    const check_report report = check(plain_, *answer.plan);
    if (!report.valid()) throw bad_argument("fit_arena: solve returned an illegal schedule: " + report.message());
    if (best_.memory && report.time >= best_.time) return outcome::no_faster;
    const std::vector<interval> intervals =
        intervals_of(lifetimes_of(plain_, *answer.plan), std::span<const tensor_id>(options_.elsewhere));
    memory_plan memory = pack(intervals);
    if (best_.smallest_arena == 0 || memory.arena_bytes < best_.smallest_arena)
      best_.smallest_arena = memory.arena_bytes;
    if (memory.arena_bytes > most_) {
      missing_ = memory.arena_bytes - most_;
      load_ = memory.lower_bound;
      fastest_too_large_ = std::min(fastest_too_large_, report.time);
      return outcome::too_large;
    }
    const memory_check_report placed = check_memory(intervals, memory.offsets, memory.arena_bytes, alignment_);
    if (!placed.valid()) throw internal_error("memory plan: " + placed.message());
    best_.plan = std::move(answer.plan);
    best_.peak_bytes = report.peak_bytes;
    best_.time = report.time;
    best_.statistics.computes = report.computes;
    best_.statistics.recomputes = report.recomputes;
    best_.message = std::move(answer.message);
    best_.memory = std::move(memory);
    best_.solved_budget = budget;
    return outcome::fits;
  }

  /// Packs until the arena is within the budget, first with little work. An arena that is then near gets more.
  [[nodiscard]] memory_plan pack(const std::vector<interval>& intervals) {
    memory_plan memory = plan_memory(intervals, packing(memory_plan_options::default_work));
    count(memory);
    constexpr std::int64_t near = 16;  // a part of the budget
    if (memory.arena_bytes <= most_ || memory.optimal || memory.arena_bytes - most_ > most_ / near) return memory;
    if (clock_.should_stop()) return memory;
    memory_plan denser = plan_memory(intervals, packing(more_packing));
    count(denser);
    return denser.arena_bytes < memory.arena_bytes ? std::move(denser) : std::move(memory);
  }

  [[nodiscard]] memory_plan_options packing(std::uint64_t work) const {
    memory_plan_options out = options_.memory;
    out.enough = most_ == problem::unlimited ? 0 : most_;
    const run_control part = clock_.part(1.0 / 3);
    constexpr std::uint64_t per_work = fit_arena_options::packing_per_work;
    if (part.work_limit <= run_control::no_work_limit / per_work) work = std::min(work, part.work_limit * per_work);
    out.run.stop = options_.run.stop;
    out.run.time_limit = std::min(out.run.time_limit, part.time_limit);
    out.run.work_limit = std::min(out.run.work_limit, work);
    out.run.on_progress = nullptr;
    return out;
  }
  void count(const memory_plan& memory) { clock_.work(memory.statistics.work / fit_arena_options::packing_per_work); }

  /// The peak budget of the next solve, after one with `budget`; nothing where no further one is of use.
  [[nodiscard]] std::optional<std::int64_t> next_budget(std::int64_t budget) const {
    if (best_.memory) return fitted_ >= most_ ? std::nullopt : between(fitted_, fitting_tolerance());
    if (best_.solves == 1 && last_ == outcome::no_schedule) return std::nullopt;
    if (none_ >= 0) return between(none_, alignment_);
    const int doublings = static_cast<int>(std::min<std::uint32_t>(failures_ - 1, 20));
    const std::int64_t from = std::min(budget, load_);
    const std::int64_t step = missing_ > from >> doublings ? from : missing_ << doublings;
    if (from == 0) return std::nullopt;
    return (from - std::max(std::min(step, from), alignment_)) / alignment_ * alignment_;
  }

  /// Half-way from `low` to the lowest budget whose schedule was too large, unless they are less than `tolerance` apart
  /// or no schedule above `low` promises to be faster.
  [[nodiscard]] std::optional<std::int64_t> between(std::int64_t low, std::int64_t tolerance) const {
    if (best_.memory && (best_.time <= fastest_too_large_ || is_optimal(best_.time, best_.lower_bound)))
      return std::nullopt;
    const std::int64_t budget = low + (too_large_ - low) / 2 / alignment_ * alignment_;
    if (too_large_ - low <= tolerance || budget <= low) return std::nullopt;
    return budget;
  }
  [[nodiscard]] std::int64_t fitting_tolerance() const { return std::max(alignment_, most_ / 1024); }

  void finish() {
    best_.statistics.seconds = clock_.seconds();
    best_.statistics.work = clock_.work_done();
    if (best_.memory) {
      best_.status = is_optimal(best_.time, best_.lower_bound) ? solve_status::optimal : solve_status::feasible;
      return;
    }
    if (failures_ == 0) return;  // the first solve found no schedule, and says why
    best_.status = options_.run.stop.stop_requested() ? solve_status::cancelled : solve_status::timeout;
    best_.message = "found no schedule whose arena is within " + std::to_string(options_.budget) + " bytes, in " +
                    std::to_string(best_.solves) + (best_.solves == 1 ? " solve" : " solves") +
                    "; the smallest arena was " + std::to_string(best_.smallest_arena);
  }

  const problem plain_;    // without a budget
  const problem rounded_;  // whose peak is the load of the arena
  const solve_function& solve_;
  const fit_arena_options& options_;
  run_clock clock_;
  const std::int64_t alignment_;
  const std::int64_t most_;  // bytes of the arena: the budget, rounded down to the alignment

  arena_solution best_{};
  outcome last_ = outcome::no_schedule;  // of the last solve
  std::uint32_t failures_ = 0;           // solves whose schedule was too large
  std::int64_t missing_ = 0;             // bytes over the budget, of the last schedule that was too large
  std::int64_t load_ = 0;                // of that schedule
  double fastest_too_large_ = std::numeric_limits<double>::infinity();
  std::int64_t none_ = -1;                                             // the highest budget without a schedule
  std::int64_t fitted_ = -1;                                           // the highest budget whose schedule fitted
  std::int64_t too_large_ = std::numeric_limits<std::int64_t>::max();  // the lowest whose schedule did not
};

}  // namespace detail::arena_fitting

REMAT_INLINE problem arena_problem(const problem& p, std::int64_t alignment, std::span<const tensor_id> elsewhere) {
  if (alignment < 1)
    throw bad_argument("the alignment is " + std::to_string(alignment) + " bytes; it must be at least 1");
  flat_graph g = p.graph();
  for (const tensor_id t : elsewhere) {
    if (index(t) >= g.num_tensors)
      throw bad_argument("elsewhere: " + std::to_string(index(t)) + " is no tensor; there are " +
                         std::to_string(g.num_tensors));
    g.bytes[index(t)] = 0;
  }
  for (std::int64_t& bytes : g.bytes) bytes = detail::arena_fitting::rounded_up(bytes, alignment);
  for (std::int64_t& bytes : g.workspace) bytes = detail::arena_fitting::rounded_up(bytes, alignment);
  try {
    return problem::from_flat(std::move(g));
  } catch (const bad_cost& e) {
    throw bad_argument(std::string(e.what()) + ", rounded up to multiples of " + std::to_string(alignment));
  }
}

REMAT_INLINE arena_solution fit_arena_by(const problem& p,
                                         const std::function<solution(const problem&, const run_control&)>& solve,
                                         const fit_arena_options& options) {
  if (options.solves == 0) throw bad_argument("fit_arena: solves is 0; it must be at least 1");
  if (options.budget < 0)
    throw bad_argument("fit_arena: budget is " + std::to_string(options.budget) + " bytes; it must not be negative");
  if (options.memory.alignment < 1) (void)arena_problem(p, options.memory.alignment);  // says so
  return detail::arena_fitting::arena_search(p, solve, options).run();
}

}  // namespace remat
