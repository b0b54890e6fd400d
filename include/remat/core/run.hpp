// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <stop_token>
#include <string_view>

namespace remat {

/// The largest relative difference, by rounding, between two sums of the same times in different orders.
inline constexpr double rounding_error = 1e-12;

/// Returns `limit`, raised by the rounding error of a sum that equals it.
[[nodiscard]] constexpr double with_rounding(double limit) noexcept { return limit * (1 + rounding_error); }

/// The one test of optimality: returns true when `value` exceeds its proven lower bound by no more than rounding.
[[nodiscard]] constexpr bool is_optimal(double value, double lower_bound) noexcept {
  return value <= with_rounding(lower_bound);
}

/// A report of a long solve to its caller.
struct progress {
  std::string_view solver{};  ///< name of the solver
  std::string_view stage{};   ///< the part of the method that runs now
  /// The objective of the best answer so far: the time of a schedule, the width of a tree decomposition, the objective
  /// of an integer program. Infinite where there is no answer yet.
  double best_objective = std::numeric_limits<double>::infinity();
  double lower_bound = 0;                 ///< proven lower bound on the objective
  std::uint64_t done = 0;                 ///< units of work that are done
  std::uint64_t total = 0;                ///< units of work in all; 0 where that is not known
  std::chrono::nanoseconds elapsed{};     ///< wall clock time since the start of the solve
  std::chrono::nanoseconds time_limit{};  ///< of the solve; the largest duration where there is no limit
};

/// The control of a solve: limits, stop token, seed, threads and progress. The options of every solver have one as
/// `run`.
///
/// A solver polls the limits at a bounded stride, which its header states. When it is stopped, it returns its best
/// schedule so far. It calls `on_progress` on the thread that called the solver; an exception from `on_progress` leaves
/// the solver.
struct run_control {
  /// The value of `work_limit` for a solve without a limit of work.
  static constexpr std::uint64_t no_work_limit = std::numeric_limits<std::uint64_t>::max();

  /// A request ends the solve at its next poll.
  std::stop_token stop{};
  std::chrono::nanoseconds time_limit = std::chrono::nanoseconds::max();  ///< wall clock
  std::uint64_t work_limit = no_work_limit;  ///< elementary moves; a limit makes the answer depend on `seed` alone
  std::uint64_t seed = 0;                    ///< of the random numbers
  unsigned threads = 1;                      ///< 0 means 1
  /// Called now and then with the state of the solve. May be empty.
  std::function<void(const progress&)> on_progress{};
};

/// Returns the share of a time limit: all of it for a share of 1 or more, and no limit where there is none.
[[nodiscard]] inline std::chrono::nanoseconds share_of(std::chrono::nanoseconds time, double share) {
  if (time == std::chrono::nanoseconds::max() || share >= 1) return time;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(static_cast<double>(time.count()) * share));
}

/// Returns the share of a work limit, at least 1: all of it for a share of 1 or more, and no limit where there is none.
[[nodiscard]] inline std::uint64_t share_of(std::uint64_t work, double share) {
  if (work == run_control::no_work_limit || share >= 1) return work;
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(work) * share));
}

/// The reason why a solver stopped early; `none` where it did not.
enum class stop_reason : std::uint8_t { none, cancelled, deadline, work };

/// The clock of one solve: tests the limits, counts work, and reports progress at most once in `report_every`.
///
/// Not thread-safe. A solver with threads gives each thread a clock of its own with the same start.
class run_clock {
 public:
  using clock = std::chrono::steady_clock;  ///< The clock that is read.
  /// The least time between two calls of `on_progress`.
  static constexpr std::chrono::milliseconds report_every{50};

  /// Starts the clock at `start`. `control` must outlive this object.
  explicit run_clock(const run_control& control, clock::time_point start = clock::now())
      : control_(&control), start_(start) {}

  /// Returns the wall clock time since the start.
  [[nodiscard]] std::chrono::nanoseconds elapsed() const { return clock::now() - start_; }
  /// Returns the wall clock time since the start, in seconds.
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(elapsed()).count(); }
  /// Returns the time of the start.
  [[nodiscard]] clock::time_point start() const noexcept { return start_; }
  /// Returns the control that was given.
  [[nodiscard]] const run_control& control() const noexcept { return *control_; }
  /// Returns the time up to the deadline, at least 0; the largest duration where there is no deadline.
  [[nodiscard]] std::chrono::nanoseconds left() const {
    if (control_->time_limit == std::chrono::nanoseconds::max()) return control_->time_limit;
    return std::max(std::chrono::nanoseconds(0), control_->time_limit - elapsed());
  }

  /// Returns the work up to the limit, at least 0; `no_work_limit` where there is no limit.
  [[nodiscard]] std::uint64_t work_left() const noexcept {
    if (control_->work_limit == run_control::no_work_limit) return control_->work_limit;
    return control_->work_limit - std::min(control_->work_limit, work_);
  }
  /// Returns the control of a part of this solve. The part gets `share` of the time and the work that are left, the
  /// same stop token, seed and threads, and no progress callback. All solvers share their limits by this rule.
  [[nodiscard]] run_control part(double share) const {
    run_control run = *control_;
    run.time_limit = share_of(left(), share);
    run.work_limit = share_of(work_left(), share);
    run.on_progress = nullptr;
    return run;
  }

  /// Counts `n` elementary moves.
  void work(std::uint64_t n = 1) noexcept { work_ += n; }
  /// Returns the number of elementary moves that have been counted.
  [[nodiscard]] std::uint64_t work_done() const noexcept { return work_; }

  /// Returns the reason to stop now, if there is one. Reads the clock, which takes some 30 ns.
  [[nodiscard]] stop_reason poll() const {
    if (control_->stop.stop_requested()) return stop_reason::cancelled;
    if (work_ >= control_->work_limit) return stop_reason::work;
    if (control_->time_limit != std::chrono::nanoseconds::max() && elapsed() >= control_->time_limit)
      return stop_reason::deadline;
    return stop_reason::none;
  }
  /// Returns true where `poll` gives a reason to stop.
  [[nodiscard]] bool should_stop() const { return poll() != stop_reason::none; }

  /// Calls `on_progress`, unless there is none or the last call is less than `report_every` ago.
  void report(progress p) {
    if (!control_->on_progress) return;
    const auto now = clock::now();
    if (reported_ && now - last_report_ < report_every) return;
    reported_ = true;
    last_report_ = now;
    p.elapsed = now - start_;
    p.time_limit = control_->time_limit;
    control_->on_progress(p);
  }

 private:
  const run_control* control_;
  clock::time_point start_;
  clock::time_point last_report_{};
  bool reported_ = false;
  std::uint64_t work_ = 0;
};

}  // namespace remat
