// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/core/detail/platform.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE {

/// The largest relative difference, by rounding, between two sums of the same times in different orders.
inline constexpr double rounding_error = 1e-12;

/// Returns a time that is below the exact sum for which `time` stands, the sum of the times of `steps` steps; so it is
/// no more than what that schedule takes. Less by so little that `is_optimal` holds for both.
[[nodiscard]] constexpr double time_below(double time, std::uint64_t steps) noexcept {
  return time * (1 - std::max(rounding_error / 4, static_cast<double>(steps) * 0x1p-53));
}

/// Returns `limit`, raised by the rounding error of a sum that equals it.
[[nodiscard]] constexpr double with_rounding(double limit) noexcept { return limit * (1 + rounding_error); }

/// The one stop rule of all searches: returns true if `value` is at most (1 + gap) × its proven lower bound, up to
/// rounding.
[[nodiscard]] constexpr bool is_within_gap(double value, double lower_bound, double gap) noexcept {
  return value <= with_rounding(lower_bound * (1 + gap));
}

/// The `gap` of every solver unless its options say otherwise: a tenth of a per cent of the proven bound.
inline constexpr double default_gap = 1e-3;

/// The one test of optimality: returns true if `value` exceeds its proven lower bound by no more than rounding.
[[nodiscard]] constexpr bool is_optimal(double value, double lower_bound) noexcept {
  return is_within_gap(value, lower_bound, 0);
}

/// The one currency of work, in which all solvers count what they do: how many units some steps take.
///
/// A unit is the visit of one operation in a pass over a schedule. The other figures were chosen so that a unit takes
/// 0.05 to 1.4 µs in every solver: measured on one core of an AMD EPYC (Zen 5), on six graphs of tests/data/graphs with
/// 87 to 1,267 operations.
struct work_of {
  static constexpr std::uint64_t visit = 1;      ///< an operation in a pass; a recomputation that is tried to be held
  static constexpr std::uint64_t flow = 2;       ///< a maximum flow that continues from the one before
  static constexpr std::uint64_t table_row = 8;  ///< a row of a chain's table in slots; a thousand breakpoints
  static constexpr std::uint64_t move = 16;      ///< a move of a search around a schedule; 4,096 steps of a repair
};

class crew;

/// A report of a long solve to its caller.
struct progress {
  std::string_view solver{};  ///< name of the solver
  std::string_view stage{};   ///< the part of the method that runs now
  /// The objective of the best answer so far: the time of a schedule, the width of a tree decomposition, the objective
  /// of an integer program. Infinite if there is no answer yet.
  double best_objective = std::numeric_limits<double>::infinity();
  double lower_bound = 0;                 ///< proven lower bound on the objective
  std::uint64_t done = 0;                 ///< units of work that are done
  std::uint64_t total = 0;                ///< units of work in all; 0 if unknown
  std::chrono::nanoseconds elapsed{};     ///< wall clock time since the start of the solve
  std::chrono::nanoseconds time_limit{};  ///< the solve's limit; the largest duration if there is none

  /// Returns what a report of a solve says of another problem: the stage, the work and the time, but no objective and
  /// no bound. Neither holds for a problem with another budget, with a link, or of which the solve's problem is a part.
  [[nodiscard]] progress without_figures() const {
    progress out = *this;
    out.best_objective = progress().best_objective;
    out.lower_bound = progress().lower_bound;
    return out;
  }
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
  std::uint64_t work_limit = no_work_limit;  ///< units of `work_of`; a limit makes the answer depend on `seed` alone
  std::uint64_t seed = 0;                    ///< the seed of the random numbers
  unsigned threads = 1;                      ///< 0: one for each processor
  /// Called now and then with the state of the solve. May be empty.
  std::function<void(const progress&)> on_progress{};
  /// The processes that run the independent pieces of the solve (`core/run.hpp`). Null: `threads` of this process. It
  /// must outlive the solve, and does not change the answer under a limit of work.
  remat::crew* crew = nullptr;
  /// True of a part of another solve (the parts of a `run_clock` and `limits` set it). If a solve is cut off, its
  /// answer is no worse than what costs microseconds; a part leaves that to the whole.
  bool is_part = false;

  /// True if the work is limited: then it alone decides how far a solve gets.
  [[nodiscard]] bool has_work_limit() const noexcept { return work_limit != no_work_limit; }
  /// True if the time is limited.
  [[nodiscard]] bool has_time_limit() const noexcept { return time_limit != std::chrono::nanoseconds::max(); }
  /// True if the time or the work is limited.
  [[nodiscard]] bool is_limited() const noexcept { return has_work_limit() || has_time_limit(); }

  /// Returns the number of threads, at least 1.
  [[nodiscard]] unsigned thread_count() const noexcept {
    return threads != 0 ? threads : std::max(1U, std::thread::hardware_concurrency());
  }
};

/// Returns the share of a time limit: all of it for a share of 1 or more, and no limit if there is none.
[[nodiscard]] inline std::chrono::nanoseconds share_of(std::chrono::nanoseconds time, double share) {
  if (time == std::chrono::nanoseconds::max() || share >= 1) return time;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(static_cast<double>(time.count()) * share));
}

/// Returns the share of a work limit, at least 1: all of it for a share of 1 or more, and no limit if there is none.
[[nodiscard]] inline std::uint64_t share_of(std::uint64_t work, double share) {
  if (work == run_control::no_work_limit || share >= 1) return work;
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(work) * share));
}

/// The reason why a solver stopped early; `none` if it did not.
enum class stop_reason : std::uint8_t { none, cancelled, deadline, work };

/// The clock of one solve, or of one part of a solve: tests the limits, counts work, and reports progress at most once
/// in `report_every`.
///
/// A part has a clock of its own, which `part` or `part_on_other_problem` makes. Its work counts in the clock that made
/// it, too, so the work of the parts is the work of the whole, and its progress passes through that clock: all of it if
/// the part solves the same problem, else no objective and no bound.
///
/// Not thread-safe. A solver with threads gives each thread a clock of its own (`limits`).
///
///     run_clock clock(options.run, "solver");
///     clock.watch(best.time, best.lower_bound);
///     run_clock part = clock.part(0.25, "chains");  // a quarter of what is left
///     search(part);
class run_clock {
 public:
  using clock = std::chrono::steady_clock;  ///< The clock that is read.
  /// The least time between two calls of `on_progress`.
  static constexpr std::chrono::milliseconds report_every{50};

  /// Starts the clock of a solve at `start`. Reports of progress bear the name `solver`, unless it is empty.
  explicit run_clock(run_control control, std::string_view solver = {}, clock::time_point start = clock::now())
      : control_(std::move(control)), start_(start), solver_(solver) {}
  run_clock(const run_clock&) = delete;
  run_clock& operator=(const run_clock&) = delete;

  /// Starts the clock of a part, which gets `share` of the time and the work that are left, the same stop token, seed
  /// and threads. Its progress goes through this clock, with `stage` as the stage unless that is empty. All solvers
  /// share their limits by this rule. This clock must outlive the part's.
  ///
  /// Precondition: each schedule of the part is one of the whole, which takes it, and each bound holds for the whole.
  [[nodiscard]] run_clock part(double share, std::string_view stage = {}) { return {*this, share, stage, false}; }
  /// The same for a part that solves another problem: without the link, under another budget, of some operations, a
  /// model of the whole; or whose word counts for nothing. Its progress passes as `progress::without_figures`.
  [[nodiscard]] run_clock part_on_other_problem(double share, std::string_view stage = {}) {
    return {*this, share, stage, true};
  }

  /// Returns `share` of what is left of the limits, for a solver of a sub-problem. It does not report progress, since
  /// its objective is another one. The caller counts its work (`work`).
  [[nodiscard]] run_control limits(double share = 1) const {
    run_control out = control_;
    out.time_limit = share_of(left(), share);
    out.work_limit = share_of(work_left(), share);
    out.on_progress = nullptr;
    out.is_part = true;
    return out;
  }

  /// Returns the wall clock time since the start, never less than 0. May be called on any thread.
  ///
  /// If the clock is set back, which it must not be, the time goes on from the last reading: so a deadline is never put
  /// off by more than the time between two readings.
  [[nodiscard]] std::chrono::nanoseconds elapsed() const {
    constexpr std::int64_t stride = 1'000'000;  // seldom written, since threads share it
    std::int64_t latest = latest_.load(std::memory_order_acquire);
    const std::int64_t now = ticks(clock::now());  // read after `latest`, so it is no earlier
    if (now < latest) {
      const std::int64_t back = latest - now;
      if (latest_.compare_exchange_strong(latest, now)) set_back_.fetch_add(back);
    } else if (now - latest > stride) {
      latest_.compare_exchange_strong(latest, now);
    }
    return std::chrono::nanoseconds(std::max<std::int64_t>(0, now - ticks(start_) + set_back_.load()));
  }
  /// Returns the wall clock time since the start, in seconds.
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(elapsed()).count(); }
  /// Returns the control of this solve or part: what a solver that runs within these limits gets as its `run`. The
  /// work of such a solver is to be counted here (`work`).
  [[nodiscard]] const run_control& control() const noexcept { return control_; }
  /// Returns the time up to the deadline, at least 0; the largest duration if there is no deadline.
  [[nodiscard]] std::chrono::nanoseconds left() const {
    if (!control_.has_time_limit()) return control_.time_limit;
    return std::max(std::chrono::nanoseconds(0), control_.time_limit - elapsed());
  }
  /// Returns the work up to the limit, at least 0; `no_work_limit` if there is no limit.
  [[nodiscard]] std::uint64_t work_left() const noexcept {
    if (!control_.has_work_limit()) return control_.work_limit;
    return control_.work_limit - std::min(control_.work_limit, work_);
  }

  /// Counts `n` units of work, here and in the clocks of which this is a part.
  void work(std::uint64_t n = 1) noexcept {
    for (run_clock* c = this; c != nullptr; c = c->whole_) c->work_ += n;
  }
  /// Returns the units of work that have been counted.
  [[nodiscard]] std::uint64_t work_done() const noexcept { return work_; }

  /// Notes that memory ran out (`std::bad_alloc`) in this solve or part, here and in the clocks of which this is a
  /// part.
  void note_out_of_memory() noexcept {
    for (run_clock* c = this; c != nullptr; c = c->whole_) c->out_of_memory_ = true;
  }
  /// Returns true if memory ran out in this solve or in one of its parts.
  [[nodiscard]] bool is_out_of_memory() const noexcept { return out_of_memory_; }

  /// Returns the reason to stop now, if there is one. Reads the clock, which takes some 30 ns.
  [[nodiscard]] stop_reason poll() const {
    if (control_.stop.stop_requested()) return stop_reason::cancelled;
    if (work_ >= control_.work_limit) return stop_reason::work;
    if (control_.time_limit != std::chrono::nanoseconds::max() && elapsed() >= control_.time_limit)
      return stop_reason::deadline;
    return stop_reason::none;
  }
  /// Returns true if `poll` gives a reason to stop.
  [[nodiscard]] bool should_stop() const { return poll() != stop_reason::none; }

  /// Reports of this clock and of its parts hold at least what these variables say from now on: the objective of the
  /// best answer so far, and a proven lower bound. Both must outlive the clock, or the next call of `watch`.
  void watch(const double& best_objective, const double& lower_bound) noexcept {
    best_objective_ = &best_objective;
    lower_bound_ = &lower_bound;
  }
  void watch(double&&, const double&) = delete;
  void watch(const double&, double&&) = delete;
  /// True if anybody listens to the progress.
  [[nodiscard]] bool is_heard() const noexcept { return static_cast<bool>(control_.on_progress); }
  /// Reports progress to the caller of the solve, unless nobody listens or the last report is less than `report_every`
  /// ago. The clock fills in who reports, the time, and the better of the figures given and those that it watches.
  void report(progress news) {
    if (!is_heard()) return;
    if (best_objective_ != nullptr) {
      news.best_objective = std::min(news.best_objective, *best_objective_);
      news.lower_bound = std::max(news.lower_bound, *lower_bound_);
    }
    if (!stage_.empty()) news.stage = stage_;
    if (!solver_.empty()) news.solver = solver_;
    if (whole_ != nullptr) return whole_->report(is_on_other_problem_ ? news.without_figures() : news);
    const std::chrono::nanoseconds now = elapsed();
    if (reported_ && now - last_report_ < report_every) return;
    reported_ = true;
    last_report_ = now;
    news.elapsed = now;
    news.time_limit = control_.time_limit;
    control_.on_progress(news);
  }

 private:
  run_clock(run_clock& whole, double share, std::string_view stage, bool on_other_problem)
      : control_(whole.limits(share)),
        start_(clock::now()),
        stage_(stage),
        whole_(&whole),
        is_on_other_problem_(on_other_problem) {
    if (whole.is_heard()) control_.on_progress = [this](const progress& news) { report(news); };
  }

  [[nodiscard]] static std::int64_t ticks(clock::time_point t) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(t.time_since_epoch()).count();
  }

  run_control control_;
  clock::time_point start_;
  mutable std::atomic<std::int64_t> latest_{ticks(start_)};  // about the latest reading of the clock
  mutable std::atomic<std::int64_t> set_back_{0};            // how far the clock was set back since the start
  std::chrono::nanoseconds last_report_{};                   // the time of the last report, since the start
  std::string_view solver_{}, stage_{};
  run_clock* whole_ = nullptr;  // the clock of which this is a part
  bool is_on_other_problem_ = false;
  const double* best_objective_ = nullptr;
  const double* lower_bound_ = nullptr;
  bool reported_ = false, out_of_memory_ = false;
  std::uint64_t work_ = 0;
};

/// \file
/// Independent pieces of a solve, and who runs them: threads of this process (`run_pieces`), or the processes of a crew
/// (`run_control::crew`; `distribute/mpi_crew.hpp` has one over the ranks of MPI). Results are taken by the number of
/// the piece, so the answer does not depend on who ran which piece.

/// Data for another process.
using byte_row = std::vector<std::byte>;

/// Pieces of one kind, numbered from 0. `count`, `limits` and `run` must be set.
struct piece_list {
  std::size_t count = 0;  ///< the number of pieces
  /// Returns the size of a piece, positive: larger ones are expected to take longer. All are of one size by default.
  std::function<double(std::size_t)> size = [](std::size_t) { return 1.0; };
  /// Returns the limits of a piece; called when the piece is about to begin, one call after the other.
  /// `members`: at most this many pieces run at the same time.
  std::function<run_control(std::size_t piece, std::size_t members)> limits{};
  /// Runs a piece in this process, and keeps its result; called by several threads at once. `run` has the limits, and
  /// no crew. Progress may be reported if `run.on_progress` is set.
  std::function<void(std::size_t piece, const run_control& run)> run{};
  /// Called on the caller's thread when pieces have finished, with their number. May be empty.
  std::function<void(std::size_t finished)> report{};

  // The rest is for pieces that may run in another process.
  std::string_view kind{};                                              ///< the name of a `piece_kind`; empty: none may
  std::function<byte_row()> shared{};                                   ///< the bytes that all pieces need
  std::function<byte_row(std::size_t piece)> encode{};                  ///< the bytes that this piece needs beside
  std::function<void(std::size_t, std::span<const std::byte>)> take{};  ///< keeps the result of a piece
};

/// How another process runs pieces of one kind.
struct piece_kind {
  /// Runs a piece: takes what `piece_list::encode` returned, and returns what `piece_list::take` gets.
  using runner = std::function<byte_row(std::span<const std::byte> piece, const run_control& run)>;
  std::string name{};  ///< `piece_list::kind`
  /// Returns the runner for pieces that share what `piece_list::shared` returned. The bytes live as long as the runner.
  std::function<runner(std::span<const std::byte> shared)> open{};
};

namespace detail {

/// The times of finished pieces of a kind, and from these the expected times of others.
class piece_times {
 public:
  /// Notes the time of a piece.
  void learn(double size, double seconds);
  /// Returns the expected time: between those of the next smaller and the next larger piece that are known; beyond
  /// these, in proportion to the size. Without any, the size.
  [[nodiscard]] double expect(double size) const;

 private:
  struct mean {
    double seconds = 0;
    double count = 0;
  };
  std::map<double, mean> known_{};
};

}  // namespace detail

/// Processes that run pieces together. `run_control::crew` refers to one; null means threads of this process.
/// A solver asks its crew on the thread that called the solver alone: what runs on other threads, or as a piece, has
/// none.
class crew {
 public:
  crew() = default;
  crew(const crew&) = delete;
  crew& operator=(const crew&) = delete;
  virtual ~crew() = default;
  /// Returns how many pieces may run at the same time.
  [[nodiscard]] virtual std::size_t members() const noexcept = 0;
  /// Runs all pieces, those that are expected to take longest first, and returns when all have ended. If pieces throw,
  /// the exception of one of them leaves the function when all that had begun have ended.
  virtual void run(const piece_list& pieces, const run_control& control) = 0;
};

/// Runs all pieces by the crew of `control`, or without one on its threads, and returns when all have ended.
///
/// Pieces that are expected to take longest begin first; the expectation learns from those that have ended. If a piece
/// throws, no more are begun, those that run are asked to stop, and when they have ended, the exception of the least
/// piece that has thrown leaves the function. Progress is reported on the caller's thread.
void run_pieces(const piece_list& pieces, const run_control& control);

namespace detail {

/// `run_pieces` on threads of this process. `times`: of such pieces.
void run_pieces_on_threads(const piece_list& pieces, const run_control& control, piece_times& times);

/// The order in which pieces begin. Not thread-safe.
class piece_queue {
 public:
  /// Keeps references to both.
  piece_queue(const piece_list& pieces, piece_times& times);
  /// Returns true if no piece is left.
  [[nodiscard]] bool empty() const noexcept { return order_.empty(); }
  /// Removes the piece that is expected to take longest, and returns it. Precondition: not empty.
  [[nodiscard]] std::size_t next();
  /// Notes that a piece has ended.
  void learn(std::size_t piece, double seconds);

 private:
  void sort();

  const piece_list& pieces_;
  piece_times& times_;
  std::vector<std::size_t> order_{};  // the next one last
  std::size_t learned_ = 0, sort_at_ = 1;
};

}  // namespace detail

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/core/impl/run.hpp"
#endif
