// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/bound/detail/moment_chain.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// The knowledge of a problem while its parts run. A slice of a part gets a copy, which shares the schedules.
class pool_view {
 public:
  using shared_schedule = std::shared_ptr<const schedule>;

  /// The fastest schedule that a part has found.
  struct origin {
    std::string_view part{};
    shared_schedule plan{};
    double time = 0;
  };

  explicit pool_view(problem p) : instance(std::move(p)) {}

  problem instance;                             ///< knows the best proven bound, once one has been proven
  solution best{};                              ///< the best schedule and bound so far
  turnaround_result moment{};                   ///< the bound at one moment, without `saved`
  std::vector<op_id> moments{};                 ///< the moments of the best chain
  std::shared_ptr<const moment_chain> chain{};  ///< the chain of these moments; null: not known yet
  std::vector<shared_schedule> starts{};        ///< schedules to start from, the fastest first
  std::vector<origin> origins{};  ///< each part's, the fastest first; what came before all parts counts as one part

  /// True if nothing is left to do: no schedule fits, or the best one is within `gap` of the bound.
  [[nodiscard]] bool is_settled(double gap) const noexcept {
    return best.status == solve_status::infeasible || !std::isfinite(best.lower_bound) || best.is_within(gap);
  }
  /// The time of the best schedule beyond the bound; infinite without a schedule.
  [[nodiscard]] double open_gap() const noexcept {
    return best.plan ? best.time - best.lower_bound : std::numeric_limits<double>::infinity();
  }

  /// The bound that closes the gap of the best schedule: a higher one is not needed.
  [[nodiscard]] double closing_bound(double gap) const {
    return time_below(best.time, best.statistics.computes) / (1 + gap);
  }

  /// Returns at most `count` different schedules to start from: the fastest one, then the fastest ones of different
  /// parts. The schedules of one part are often much the same.
  [[nodiscard]] std::vector<schedule> different_starts(std::size_t count) const {
    std::vector<schedule> different;
    const auto add = [&](const schedule& plan) {
      if (different.size() < count && std::find(different.begin(), different.end(), plan) == different.end())
        different.push_back(plan);
    };
    if (!starts.empty()) add(*starts.front());
    for (const origin& x : origins) add(*x.plan);
    for (const shared_schedule& x : starts) add(*x);
    return different;
  }

  /// Adds a schedule to start from, unless there is one of the same time, or there are many faster ones.
  void add_start(schedule found, double time, std::string_view part) {
    auto plan = std::make_shared<const schedule>(std::move(found));
    add_origin(part, plan, time);
    const auto at = std::lower_bound(times_.begin(), times_.end(), time);
    if (at != times_.end() && *at == time) return;
    const auto place = at - times_.begin();
    times_.insert(at, time);
    starts.insert(starts.begin() + place, std::move(plan));
    if (starts.size() <= max_starts) return;
    times_.pop_back();
    starts.pop_back();
  }

 private:
  void add_origin(std::string_view part, const shared_schedule& plan, double time) {
    const auto known = std::find_if(origins.begin(), origins.end(), [&](const origin& x) { return x.part == part; });
    if (known != origins.end()) {
      if (known->time <= time) return;
      origins.erase(known);
    }
    const auto at = std::upper_bound(origins.begin(), origins.end(), time,
                                     [](double earlier, const origin& x) { return earlier < x.time; });
    origins.insert(at, {part, plan, time});
  }

  static constexpr std::size_t max_starts = 12;
  std::vector<double> times_{};  // the times of `starts`
};

/// Notes in `s` what a turnaround bound has proven.
inline void note_turnaround(const problem& p, const turnaround_result& found, solution& s) {
  s.proven = true;
  s.lower_bound = std::max({s.lower_bound, found.lower_bound, p.graph().needed_time, p.known_bound().value_or(0)});
  if (!found.infeasible) return;
  s.message = found.least_memory.message(p.operation_name(found.least_memory.operation));
  s.obstacle = found.least_memory.operation;
}

/// The one owner of the best schedule and of the best bound of a solve. Schedules come in by `put` alone, which checks
/// them, and bounds by `put_bound` and `prove`.
///
/// Any thread may call the members; `best` is for the thread that runs the solve, while no part runs.
class pool {
 public:
  explicit pool(problem p) : now_(std::move(p)) {}
  pool(const pool&) = delete;  // clocks watch it
  pool& operator=(const pool&) = delete;

  /// A copy of all that is known.
  [[nodiscard]] pool_view view() const {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  /// Returns `ask(view)`, without a copy.
  template <class Ask>
  auto read(Ask&& ask) const {
    const std::lock_guard lock(mutex_);
    return ask(now_);
  }
  /// Lets `tell(view)` note what guides other parts: moments and chains.
  template <class Tell>
  void note(Tell&& tell) {
    const std::lock_guard lock(mutex_);
    tell(now_);
  }

  /// True if nothing is left to do (`pool_view::is_settled`).
  [[nodiscard]] bool is_settled(double gap) const {
    return read([&](const pool_view& now) { return now.is_settled(gap); });
  }
  /// The best schedule and bound, and what is proven.
  [[nodiscard]] const solution& best() const noexcept { return now_.best; }
  /// The problem, which knows the bound once one has been proven.
  [[nodiscard]] const problem& instance() const noexcept { return now_.instance; }

  /// Checks the schedule that `by` has found. One within the budget is a start for others, and the best one if it is
  /// better. Throws `internal_error` for one that is not legal. Returns true if it is the best now. `part` is the name
  /// of the part, which must outlive the pool.
  bool put(schedule plan, std::string_view by, std::string_view part = {}) {
    const std::lock_guard lock(mutex_);
    return take_start(accept(now_.instance, now_.best, plan, by), plan, part);
  }
  /// Takes what a part has found and proven: its schedule, as `put` above, its bound, and that nothing fits. The rest
  /// of `found` stays. If memory runs out, the schedule is the best with the figures that `found` has (`take_part`).
  bool put(solution& found, std::string_view part = {}) {
    const std::lock_guard lock(mutex_);
    const double before = now_.best.lower_bound;
    take_bound(now_.best, found);
    if (found.status == solve_status::infeasible) now_.best.status = found.status;
    bool taken = false;
    if (found.plan) {
      acceptance checked;
      take_part(now_.best, found, [&] { checked = accept(now_.instance, now_.best, *found.plan, found.by); });
      taken = take_start(checked, *found.plan, part);
    }
    if (now_.best.lower_bound > before) hand_on_bound();
    return taken;
  }
  /// Takes a bound that is proven for at least this budget.
  void put_bound(double lower_bound) {
    const std::lock_guard lock(mutex_);
    now_.best.lower_bound = std::max(now_.best.lower_bound, lower_bound);
    hand_on_bound();
  }
  /// Proves a bound of its own, unless there is one (`remat::prove`). Returns true if nothing fits.
  bool prove(const run_control& run = {}) {
    const std::lock_guard lock(mutex_);
    if (remat::prove(now_.instance, now_.best, run)) return true;
    hand_on_bound();
    return false;
  }
  /// Takes the bound at one moment, which becomes that of `prove`. Returns true if nothing fits.
  bool put_moment(turnaround_result found) {
    {
      const std::lock_guard lock(mutex_);
      note_turnaround(now_.instance, found, now_.best);
      found.saved = {};
      now_.moment = std::move(found);
    }
    return prove();
  }
  /// The answer, at the end of a solve, for `conclude`.
  [[nodiscard]] solution& answer() noexcept { return now_.best; }

 private:
  /// Makes a schedule that is within the budget a start for others. Returns whether it is the best.
  bool take_start(const acceptance& checked, schedule& plan, std::string_view part) {
    if (checked.report.valid()) now_.add_start(std::move(plan), checked.report.time, part);
    return checked;
  }
  void hand_on_bound() {
    // A problem that knows a bound is spared a proof of its own, which may be better.
    if (now_.best.proven) now_.instance = now_.instance.with_known_bound(now_.best.lower_bound);
  }

  mutable std::mutex mutex_;
  pool_view now_;
};

}  // namespace REMAT_NAMESPACE::detail
