// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/execute/fit_arena.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/schedule/check.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE {

namespace detail::fit_arena {

/// `bytes` rounded up to a multiple of `alignment`.
[[nodiscard]] inline std::int64_t rounded_up(std::int64_t bytes, std::int64_t alignment) {
  const std::int64_t rest = bytes % alignment;
  if (rest == 0) return bytes;
  if (bytes > std::numeric_limits<std::int64_t>::max() - (alignment - rest))
    throw bad_argument("a size of " + detail::count_of(bytes, "byte") + ", rounded up to a multiple of " +
                       std::to_string(alignment) + ", exceeds 2^63 − 1");
  return bytes + (alignment - rest);
}

/// A copy of `alignment` bytes takes at most so long, without the latency: no rounding adds more to the time of a copy.
[[nodiscard]] inline double rounding_time(const host_link& link, std::int64_t alignment) {
  return static_cast<double>(alignment) / std::min(link.out, link.in);
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
        max_arena_(options.budget == problem::unlimited ? problem::unlimited
                                                        : options.budget / alignment_ * alignment_),
        bounds_hold_(!p.link() || p.link()->latency >= rounding_time(*p.link(), alignment_)) {}

  [[nodiscard]] arena_solution run() {
    clock_.watch(best_.time, best_.lower_bound);
    for (std::optional<std::int64_t> budget = max_arena_; budget;) {
      attempt(*budget, next_share());
      budget = is_done() ? std::nullopt : next_budget();
    }
    if (!best_.memory && nearest_ && !clock_.should_stop()) pack_nearest();
    finish();
    return std::move(best_);
  }

 private:
  /// The share of the next solve in the limits that are left. The first one is short: it shows how much the gaps take.
  [[nodiscard]] double next_share() const {
    if (best_.solves == 0) return fit_arena_options::first_share;
    if (best_.solves > 1) return 0.5;
    return failures_ == 0 ? 0.8 : 0.6;  // the second one makes the most of what the first one showed
  }

  // Work of `plan_memory`: for an arena that is near the budget; under a limit of work, for each unit of the share of a
  // packing, and at least.
  static constexpr std::uint64_t more_packing = 20 * memory_plan_options::default_work, packing_per_work = 256,
                                 least_packing = memory_plan_options::default_work / 4;

  /// A schedule, with the intervals of its allocations.
  struct candidate {
    std::int64_t budget = 0;  // the budget of its solve
    solution answer{};
    check_report report{};
    std::vector<interval> intervals{};
    bool optimal = false;  // its arena is proven the smallest
  };

  [[nodiscard]] bool is_done() const {
    if (best_.solves >= options_.solves || clock_.should_stop()) return true;
    if (best_.memory) return is_optimal(best_.time, best_.lower_bound) || clock_.left() < options_.run.time_limit / 32;
    return best_.status == solve_status::infeasible || best_.status == solve_status::error;
  }

  /// Solves within `budget` for the peak, packs the schedule, and notes the result.
  void attempt(std::int64_t budget, double share) {
    run_clock part = clock_.part_on_other_problem(share);
    run_control limits = part.control();
    limits.is_part = options_.run.is_part;  // each is a solve by itself
    solution answer = solve_(rounded_.with_budget(budget), limits);
    part.work(answer.statistics.work);
    const bool timed = limits.has_time_limit();
    const bool counted = limits.has_work_limit();
    cut_ = (timed && part.elapsed() >= share_of(limits.time_limit, 0.9)) ||
           (counted && answer.statistics.work >= share_of(limits.work_limit, 0.9));
    ++best_.solves;
    if (budget == max_arena_) note_proofs(answer);
    if (!best_.memory) best_.solved_budget = budget;
    if (take(budget, std::move(answer))) {
      low_ = budget;
    } else {
      high_ = budget;
      if (low_ >= budget) low_ = -1;
    }
  }

  /// A proof of an answer for the whole budget holds for every schedule whose arena fits.
  void note_proofs(const solution& answer) {
    if (bounds_hold_) best_.lower_bound = std::max(best_.lower_bound, answer.lower_bound);
    best_.proven = best_.proven || answer.proven;
    if (best_.memory) return;
    ended_ = ended_by_itself(answer.statistics.own);
    best_.status = answer.status;
    best_.obstacle = answer.obstacle;
    best_.message = answer.message;
  }

  /// Makes the schedule of `answer` the best one, if it is faster and its arena is within the budget. Returns false for
  /// a faster schedule whose arena is too large.
  bool take(std::int64_t budget, solution answer) {
    if (!answer.plan) return true;
    candidate c{budget, std::move(answer)};
    c.report = check(plain_, *c.answer.plan);
    if (!c.report.valid()) throw bad_argument("fit_arena: solve returned an illegal schedule: " + c.report.message());
    if (best_.memory && c.report.time >= best_.time) return true;  // its arena does not matter
    c.intervals = intervals_of(lifetimes_of(plain_, *c.answer.plan), options_.elsewhere);
    memory_plan memory = pack(c.intervals);
    c.optimal = memory.optimal;
    if (best_.smallest_arena == 0 || memory.arena_bytes < best_.smallest_arena)
      best_.smallest_arena = memory.arena_bytes;
    if (memory.arena_bytes <= max_arena_) {
      keep(std::move(c), std::move(memory));
      return true;
    }
    ++failures_;
    load_ = memory.lower_bound;
    margin_ = memory.arena_bytes - max_arena_ + (memory.arena_bytes - load_) / 2;
    fastest_too_large_ = std::min(fastest_too_large_, c.report.time);
    if (memory.arena_bytes == best_.smallest_arena) nearest_ = std::move(c);
    return false;
  }

  /// Makes the schedule of `c` the best one. Its arena is `memory`, within the budget.
  void keep(candidate c, memory_plan memory) {
    const memory_check_report placed = check_memory(c.intervals, memory.offsets, memory.arena_bytes, alignment_);
    if (!placed.valid()) throw internal_error("memory plan: " + placed.message());
    keep_if_better(best_, *std::move(c.answer.plan), c.report, c.answer.by);
    best_.message = std::move(c.answer.message);
    best_.memory = std::move(memory);
    best_.solved_budget = c.budget;
  }

  /// No schedule fits: what is left of the limits goes into the arena that comes nearest.
  void pack_nearest() {
    if (nearest_->optimal) return;
    memory_plan memory = plan_memory(nearest_->intervals, packing(5 * more_packing, 0.9));
    best_.smallest_arena = std::min(best_.smallest_arena, memory.arena_bytes);
    if (memory.arena_bytes <= max_arena_) keep(*std::move(nearest_), std::move(memory));
  }

  /// Packs until the arena is within the budget, first with little work. An arena that is then near gets more.
  [[nodiscard]] memory_plan pack(const std::vector<interval>& intervals) {
    memory_plan memory = plan_memory(intervals, packing(memory_plan_options::default_work, packing_share()));
    const bool near = memory.arena_bytes - max_arena_ <= max_arena_ / 16;
    if (memory.arena_bytes <= max_arena_ || memory.optimal || !near || clock_.should_stop()) return memory;
    memory_plan denser = plan_memory(intervals, packing(more_packing, packing_share()));
    return denser.arena_bytes < memory.arena_bytes ? std::move(denser) : std::move(memory);
  }

  [[nodiscard]] double packing_share() const { return best_.solves == 1 ? 0.1 : 0.3; }
  [[nodiscard]] memory_plan_options packing(std::uint64_t work, double share) const {
    memory_plan_options out = options_.memory;
    out.target_bytes = max_arena_;
    if (max_arena_ == problem::unlimited) {  // every arena fits: a small one, as by default
      out.target_bytes = 0;
      work = run_control::no_work_limit;
    }
    const run_control part = clock_.limits(share);
    if (part.work_limit <= run_control::no_work_limit / packing_per_work)
      work = std::min(work, std::max(part.work_limit * packing_per_work, least_packing));
    out.run.stop = options_.run.stop;
    out.run.time_limit = std::min(out.run.time_limit, part.time_limit);
    out.run.work_limit = std::min(out.run.work_limit, work);
    out.run.on_progress = nullptr;
    return out;
  }

  /// The peak budget of the next solve; none if no further solve helps.
  [[nodiscard]] std::optional<std::int64_t> next_budget() const {
    if (failures_ == 0)  // the same solve may find a better schedule with more time
      return best_.solves == 1 && cut_ ? std::optional(max_arena_) : std::nullopt;
    if (best_.memory && best_.time <= fastest_too_large_) return std::nullopt;
    if (low_ >= 0) {
      const std::int64_t budget = low_ + (high_ - low_) / 2 / alignment_ * alignment_;
      const std::int64_t tolerance = best_.memory ? std::max(alignment_, max_arena_ / 1024) : alignment_;
      return high_ - low_ <= tolerance || budget <= low_ ? std::nullopt : std::optional(budget);
    }
    const std::uint32_t doublings = std::min<std::uint32_t>(failures_ - 1, 20);
    const std::int64_t from = std::min(high_, load_);
    const std::int64_t step = margin_ > from >> doublings ? from : std::max(margin_ << doublings, alignment_);
    if (from == 0) return std::nullopt;
    return (from - std::min(step, from)) / alignment_ * alignment_;
  }

  void finish() {
    best_.statistics.seconds = clock_.seconds();
    best_.statistics.work = clock_.work_done();
    if (best_.memory) {
      best_.status = is_optimal(best_.time, best_.lower_bound) ? solve_status::optimal : solve_status::feasible;
      return;
    }
    if (failures_ == 0) {  // no solve found a schedule, and the status says why
      if (ended_) best_.statistics.own.set(ended_figure, true);
      return;
    }
    if (clock_.poll() == stop_reason::none) best_.statistics.own.set(ended_figure, true);
    best_.status = options_.run.stop.stop_requested() ? solve_status::cancelled : solve_status::timeout;
    best_.message = "found no schedule whose arena is within " + detail::count_of(options_.budget, "byte") + ", in " +
                    std::to_string(best_.solves) + (best_.solves == 1 ? " solve" : " solves") +
                    "; the smallest arena was " + detail::count_of(best_.smallest_arena, "byte");
  }

  const problem plain_;    // the problem without a budget
  const problem rounded_;  // the problem whose peak is the load of the arena
  const solve_function& solve_;
  const fit_arena_options& options_;
  run_clock clock_;
  const std::int64_t alignment_;
  const std::int64_t max_arena_;  // bytes: the budget, rounded down to the alignment
  const bool bounds_hold_;        // a bound on the time in `rounded_` is one in `plain_`

  arena_solution best_{};
  bool cut_ = false;            // a limit ended the last solve
  bool ended_ = false;          // the solve for the whole budget ended by itself, without a schedule
  std::uint32_t failures_ = 0;  // solves whose schedule was faster than the best and too large
  std::int64_t load_ = 0;       // bytes, of the arena of the last of them
  std::int64_t margin_ = 0;     // bytes by which it exceeded the budget, and half of its gaps
  double fastest_too_large_ = std::numeric_limits<double>::infinity();  // the least time of any of them
  std::optional<candidate> nearest_{};                                  // the one of the smallest arena
  std::int64_t high_ = 0;  // the budget of the last solve whose schedule was too large
  std::int64_t low_ = -1;  // a budget below it whose schedule fitted or was no faster, or that had none; -1: none known
};

}  // namespace detail::fit_arena

REMAT_INLINE problem arena_problem(const problem& p, std::int64_t alignment, std::span<const tensor_id> elsewhere) {
  if (alignment < 1)
    throw bad_argument("the alignment is " + detail::count_of(alignment, "byte") + "; it must be at least 1");
  flat_graph g = p.graph();
  for (const tensor_id t : elsewhere) {
    if (index(t) >= g.num_tensors)
      throw bad_argument("elsewhere: " + std::to_string(index(t)) + " is no tensor; there are " +
                         std::to_string(g.num_tensors));
    g.bytes[index(t)] = 0;
  }
  for (std::int64_t& bytes : g.bytes) bytes = detail::fit_arena::rounded_up(bytes, alignment);
  for (std::int64_t& bytes : g.workspace) bytes = detail::fit_arena::rounded_up(bytes, alignment);
  try {
    const problem rounded = problem::from_flat(std::move(g));
    if (!p.link()) return rounded;
    host_link link = *p.link();
    link.latency = std::max(0.0, link.latency - detail::fit_arena::rounding_time(link, alignment));
    return rounded.with_link(link, p.host_budget());
  } catch (const bad_cost& e) {
    throw bad_argument(std::string(e.what()) + ", rounded up to multiples of " + std::to_string(alignment));
  }
}

REMAT_INLINE arena_solution fit_arena_by(const problem& p,
                                         const std::function<solution(const problem&, const run_control&)>& solve,
                                         const fit_arena_options& options) {
  if (options.solves == 0) throw bad_argument("fit_arena: solves is 0; it must be at least 1");
  if (options.budget < 0)
    throw bad_argument("fit_arena: budget is " + detail::count_of(options.budget, "byte") +
                       "; it must not be negative");
  if (options.memory.alignment < 1) (void)arena_problem(p, options.memory.alignment);  // says so
  return detail::fit_arena::arena_search(p, solve, options).run();
}

}  // namespace REMAT_NAMESPACE
