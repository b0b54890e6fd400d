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

/// What a long solve tells its caller from time to time.
struct progress {
  std::string_view solver{};                                        ///< name of the solver
  std::string_view stage{};                                         ///< what it is doing now
  double best_objective = std::numeric_limits<double>::infinity();  ///< of the best schedule so far, cost model's unit
  double lower_bound = 0;                                           ///< proven, same unit
  std::uint64_t done = 0;                                           ///< units of work done …
  std::uint64_t total = 0;                                          ///< … of that many; 0: not known
  std::chrono::nanoseconds elapsed{};
  std::chrono::nanoseconds time_limit{};
};

/// How a solve may be stopped and watched. Every solver's options hold one as `run`.
///
/// A solver polls at a bounded stride that its header states, and returns the best schedule that it has by then.
/// `on_progress` is called on the thread that called the solver; what it throws leaves the solver.
struct run_control {
  static constexpr std::uint64_t no_work_limit = std::numeric_limits<std::uint64_t>::max();

  std::stop_token stop{};
  std::chrono::nanoseconds time_limit = std::chrono::nanoseconds::max();  ///< wall clock
  std::uint64_t work_limit = no_work_limit;  ///< elementary moves; with it, `seed` alone decides the answer
  std::uint64_t seed = 0;
  unsigned threads = 1;  ///< 0 means 1
  std::function<void(const progress&)> on_progress{};
};

/// A part of a limit on time; all of it for a share of 1 or more, and where there is no limit.
[[nodiscard]] inline std::chrono::nanoseconds share_of(std::chrono::nanoseconds time, double share) {
  if (time == std::chrono::nanoseconds::max() || share >= 1) return time;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(static_cast<double>(time.count()) * share));
}

/// Why a solver stopped early, if it did.
enum class stop_reason : std::uint8_t { none, cancelled, deadline, work };

/// The clock of one solve: answers "must I stop?" and passes progress on, at most every `report_every`.
///
/// Not thread-safe; a solver that uses threads gives each of them one that shares the start.
class run_clock {
 public:
  using clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds report_every{50};

  explicit run_clock(const run_control& control, clock::time_point start = clock::now())
      : control_(&control), start_(start) {}

  [[nodiscard]] std::chrono::nanoseconds elapsed() const { return clock::now() - start_; }
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(elapsed()).count(); }
  [[nodiscard]] clock::time_point start() const noexcept { return start_; }
  [[nodiscard]] const run_control& control() const noexcept { return *control_; }
  /// Time up to the deadline, at least 0; the largest duration where there is none.
  [[nodiscard]] std::chrono::nanoseconds left() const {
    if (control_->time_limit == std::chrono::nanoseconds::max()) return control_->time_limit;
    return std::max(std::chrono::nanoseconds(0), control_->time_limit - elapsed());
  }

  /// Counts `n` elementary moves.
  void work(std::uint64_t n = 1) noexcept { work_ += n; }
  [[nodiscard]] std::uint64_t work_done() const noexcept { return work_; }

  /// Reads the clock: some 30 ns.
  [[nodiscard]] stop_reason poll() const {
    if (control_->stop.stop_requested()) return stop_reason::cancelled;
    if (work_ >= control_->work_limit) return stop_reason::work;
    if (control_->time_limit != std::chrono::nanoseconds::max() && elapsed() >= control_->time_limit)
      return stop_reason::deadline;
    return stop_reason::none;
  }
  [[nodiscard]] bool should_stop() const { return poll() != stop_reason::none; }

  /// Calls `on_progress` if there is one and the last call is long enough ago.
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
