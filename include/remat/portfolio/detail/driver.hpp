// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/core/detail/platform.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/within_memory.hpp"
#include "remat/core/run.hpp"
#include "remat/portfolio/detail/part.hpp"
#include "remat/portfolio/detail/pool.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// Runs the parts of a portfolio in slices. It knows nothing of what they do: the next slice goes where the gap
/// shrinks.
///
/// Each part first runs for a short slice, in the order in which they were added. Then the part with the least (cost so
/// far / weight) gets a slice that is some times as long as its last one. Its weight doubles if the slice closed at
/// least 5 % of the gap, and is halved if it closed less than 0.5 %, within factors of 8. So a part that helps runs
/// most of the time, and one that does not keeps a small share, in case it needs longer. The results of a slice are
/// known to all parts in their next ones. The closing part, such as annealing, gains from one long slice: two fifths of
/// the limits are left to it.
///
/// Cost is work under a work limit, otherwise wall clock time.
///
/// *Without any limit* the parts go in rounds. A round has a limit of work: all the work so far, opening included, and
/// `unlimited_work` more. A round that closes less than a tenth of the gap is the last one.
///
/// *Under a time limit* with two threads or more there are two lanes, each with half of the threads. A lane takes the
/// next slice as soon as its last one has ended, and ends the other's when the gap is closed. The last slice of the
/// closing part has all threads; only one lane's if another part still helps.
///
/// *Under a work limit* two parts begin and end side by side if the second one's turn would come soon anyway, with any
/// number of threads, so that the slices, and with them the answer, do not depend on it. With a crew, which takes one
/// part's pieces at a time, these two run one after the other.
class driver {
 public:
  /// Units of work of the first round without any limit, beside those before it: as many as `refine` takes by default.
  static constexpr std::uint64_t unlimited_work = 200'000 * work_of::move;

  /// `known` must outlive the driver.
  explicit driver(pool& known, double gap) : pool_(known), gap_(gap) {}

  void add(portfolio_part part) { entries_.push_back({std::move(part)}); }

  /// Called after each slice, on any thread, one call after the other, with the name of the part and what it has found,
  /// but for the schedule, which the pool has.
  /// May be empty.
  std::function<void(std::string_view, const solution&)> on_slice{};

  /// Runs until a limit of the clock is reached, the gap is closed, or no part has anything to do. May be called again
  /// with another clock. Returns why it stopped early.
  /// `opening`: the clock of what came before the race; its cost is the scale of the first slices.
  stop_reason run(run_clock& clock, const run_clock& opening) {
    const run_control& limits = clock.control();
    counted_ = limits.has_work_limit();
    const bool timed = limits.has_time_limit();
    if (!counted_ && !timed) return run_in_rounds(clock, opening);
    const double total = left(clock);
    first_slice_ = std::clamp(0.5 * cost(opening), 0.002 * total, 0.04 * total);
    if (!counted_ && !has_crew(clock) && limits.thread_count() > 1) return run_in_lanes(clock, total);
    while (!is_over(clock)) {
      const double rest = left(clock);
      const slices next = choose(rest, total, counted_ ? 2 : 1);
      if (next.parts.empty()) break;
      run_slices(next, clock);
      // The rest that a slice of all limits has not used is too little for anything, such as half a move.
      if (next.length == rest && !entries_[next.parts.front()].ended) break;
    }
    return clock.poll();
  }

  /// Runs each part once, in the order in which they were added, for its first share of what is left of the limits, as
  /// long as the gap is open. Returns why it stopped early.
  stop_reason run_in_turn(run_clock& clock) {
    counted_ = clock.control().has_work_limit();
    for (entry& e : entries_) {
      if (is_over(clock)) break;
      if (may_run(e)) run_slice(e, clock, e.part.first_share);
    }
    return clock.poll();
  }

 private:
  struct entry {
    portfolio_part part;
    double cost = 0;   // cost of all slices so far
    double last = 0;   // length of the last slice
    double merit = 1;  // factor of the weight
    int idle = 0;      // slices without any cost
    bool ended = false;
    double until = never;              // while a slice runs in a lane: the time at which it must end
    std::stop_source* stop = nullptr;  // ends that slice
    [[nodiscard]] bool runs() const { return until < never; }
  };
  struct slices {
    std::vector<std::size_t> parts;
    double length = 0;
    bool is_rest = false;  // all that is left of the limits
  };
  static constexpr double never = std::numeric_limits<double>::infinity();
  static constexpr double highest_merit = 8, good = 0.05, poor = 0.005, gain_of_round = 0.1;
  static constexpr int most_idle = 4;
  static constexpr double longest_share = 0.25, closing_share = 0.4;

  [[nodiscard]] double left(const run_clock& clock) const {
    if (counted_) return static_cast<double>(clock.work_left());
    return std::chrono::duration<double>(clock.left()).count();
  }
  /// The share of what is left that a slice of this length has.
  [[nodiscard]] double share_of(double length, const run_clock& clock) const {
    return std::min(1.0, length / std::max(left(clock), std::numeric_limits<double>::min()));
  }
  /// True if processes run the pieces of a part. Parts then run one after the other, since only one can ask the crew.
  [[nodiscard]] static bool has_crew(const run_clock& clock) {
    const crew* const all = clock.control().crew;
    return all != nullptr && all->members() > 1;
  }
  [[nodiscard]] bool is_done() const { return pool_.is_settled(gap_); }
  [[nodiscard]] bool is_over(const run_clock& clock) const { return is_done() || clock.should_stop(); }
  [[nodiscard]] bool may_run(const entry& e) const {
    return !e.ended && (!e.part.is_useful || pool_.read(e.part.is_useful));
  }

  stop_reason run_in_rounds(run_clock& clock, const run_clock& opening) {
    while (!is_over(clock)) {
      run_control limits = clock.limits();
      limits.work_limit = unlimited_work + opening.work_done();
      if (clock.is_heard()) limits.on_progress = [&](const progress& news) { clock.report(news); };
      run_clock round(limits);
      const double before = open_gap();
      run(round, opening);
      clock.work(round.work_done());
      if (round.is_out_of_memory()) clock.note_out_of_memory();
      if (gain_since(before) < gain_of_round) break;
    }
    return clock.poll();
  }

  /// Chooses up to `count` parts for the next slices, and their length. None: a slice that runs must end first, or no
  /// part has anything to do.
  [[nodiscard]] slices choose(double left, double total, std::size_t count) const {
    slices next;
    std::vector<std::size_t> order;
    double reserve = 0;
    double waiting = never;    // cost of a part that must run alone, while another one runs
    bool has_promise = false;  // a part that has not had its first share
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].part.is_closing && entries_[i].runs() && !has_begun_to_close_) reserve = closing_share * total;
      if (entries_[i].runs() || !may_run(entries_[i])) continue;
      has_promise = has_promise || (entries_[i].last == 0 && entries_[i].part.first_share > 0);
      if (clashes_with_running(i)) {
        if (entries_[i].part.runs_alone) waiting = std::min(waiting, paid(entries_[i]));
        continue;
      }
      order.push_back(i);
      if (entries_[i].part.is_closing) {
        reserve = closing_share * total;
        next.parts.assign(1, i);
      }
    }
    const bool others = order.size() > next.parts.size();
    if (order.empty() || (!others && waiting < never)) return {};
    if (!next.parts.empty() && (!others || (!has_promise && left <= reserve + first_slice_))) {
      next.length = left;
      next.is_rest = true;
      return next;
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return paid(entries_[a]) < paid(entries_[b]); });
    const auto is_promised = [&](std::size_t i) { return entries_[i].last == 0 && entries_[i].part.first_share > 0; };
    if (length_of(entries_[order.front()], left, reserve) == 0)
      std::stable_partition(order.begin(), order.end(), is_promised);
    const entry& first = entries_[order.front()];
    if (waiting < paid(first)) return {};
    next.length = length_of(first, left, reserve);
    if (next.length == 0) {
      next.length = left;
      next.is_rest = true;
      return next;
    }
    next.parts.clear();
    for (const std::size_t i : order) {
      if (next.parts.size() == count) break;
      const portfolio_part& part = entries_[i].part;
      // Company only for a part whose turn comes soon: one that does not help gets no half of the limits in this way.
      if (paid(entries_[i]) > 2 * (paid(first) + next.length / (first.merit * first.part.weight))) break;
      if (std::none_of(next.parts.begin(), next.parts.end(),
                       [&](std::size_t j) { return clash(part, entries_[j].part); }))
        next.parts.push_back(i);
    }
    return next;
  }
  [[nodiscard]] static bool clash(const portfolio_part& a, const portfolio_part& b) {
    return a.runs_alone || b.runs_alone || (a.shares != 0 && a.shares == b.shares);
  }
  [[nodiscard]] bool clashes_with_running(std::size_t i) const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const entry& e) { return e.runs() && clash(entries_[i].part, e.part); });
  }
  /// The length of the next slice of a part. 0: what the closing part does not need is too little for it.
  [[nodiscard]] double length_of(const entry& e, double left, double reserve) const {
    const bool is_first = e.last == 0;
    double length = std::max(first_slice_, e.part.growth * e.last);
    if (is_first && e.part.first_share > 0) return std::max(length, e.part.first_share * left);
    length = std::min(length, std::max(first_slice_, longest_share * left));
    const double room = left - reserve;
    if (length <= room) return length;
    return reserve > 0 && room < length / 2 ? 0 : room;
  }
  [[nodiscard]] static double paid(const entry& e) { return e.cost / (e.merit * e.part.weight); }

  /// Runs a slice on the caller's thread, with all threads for itself.
  void run_slice(entry& e, run_clock& clock, double share) {
    run_clock part = clock.part(share, e.part.name);
    part.watch(pool_.best().time, pool_.best().lower_bound);
    part_slice slice = run_guarded(e, pool_.view(), part);
    take(e, slice, cost(part));
  }

  /// The race under a time limit with several threads.
  stop_reason run_in_lanes(run_clock& clock, double total) {
    has_begun_to_close_ = false;
    while (!is_over(clock)) {
      closing_ = nullptr;
      piece_list lanes;
      lanes.count = 2;
      lanes.limits = [limits = clock.limits()](std::size_t, std::size_t) { return limits; };
      lanes.run = [&](std::size_t, const run_control& own) { run_lane(clock, total, own); };
      run_control control = clock.limits();
      if (clock.is_heard())
        control.on_progress = [&](const progress& news) {
          const std::lock_guard lock(mutex_);
          clock.report(news);
        };
      run_pieces(lanes, control);
      if (closing_ == nullptr || is_over(clock)) break;
      run_slice(*closing_, clock, 1);
      if (!closing_->ended) break;
    }
    return clock.poll();
  }

  /// Takes slices until the closing part is to have the rest with all threads, or no part has anything to do.
  void run_lane(run_clock& clock, double total, const run_control& own) {
    std::unique_lock lock(mutex_);
    while (closing_ == nullptr && !own.stop.stop_requested() && !is_over(clock)) {
      const double rest = left(clock);
      slices next = choose(rest, total, 1);
      const auto running = std::find_if(entries_.begin(), entries_.end(), [](const entry& e) { return e.runs(); });
      if (next.is_rest && !next.parts.empty() && has_good_part()) {
        has_begun_to_close_ = true;
      } else if (running == entries_.end()) {
        if (next.parts.empty()) break;
        if (next.is_rest) {
          closing_ = &entries_[next.parts[0]];
          break;
        }
      } else if (next.is_rest) {
        // The closing part has all threads when the other lane's slice has ended. Until then it has this one.
        next.length = std::min(rest, running->until - clock.seconds());
        if (next.length < first_slice_) next.parts.clear();
      }
      if (next.parts.empty())
        wait_for_slice(clock, lock);
      else
        run_in_lane(entries_[next.parts[0]], next.length, clock, own, lock);
    }
    slice_ended_.notify_all();
  }

  /// Waits for the end of the other lane's slice, up to the limit of time. A slice that still runs then is asked to
  /// end: its own clock may have been stopped, or jumped.
  void wait_for_slice(run_clock& clock, std::unique_lock<std::mutex>& lock) {
    slice_ended_.wait_for(lock, std::clamp<std::chrono::nanoseconds>(clock.left(), std::chrono::milliseconds(1),
                                                                     std::chrono::seconds(1)));
    if (clock.should_stop()) end_running_slices();
  }
  void end_running_slices() const {
    for (const entry& e : entries_)
      if (e.stop != nullptr) e.stop->request_stop();
  }

  /// True if a part other than the closing one helps, and may go on.
  [[nodiscard]] bool has_good_part() const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const entry& e) { return !e.part.is_closing && e.merit > 1 && (e.runs() || may_run(e)); });
  }

  /// Runs a slice without the lock.
  void run_in_lane(entry& e, double length, run_clock& clock, const run_control& own,
                   std::unique_lock<std::mutex>& lock) {
    const pool_view now = pool_.view();
    run_control limits = clock.limits(share_of(length, clock));
    limits.threads = own.threads;
    limits.on_progress = own.on_progress;
    std::stop_source stop;
    const std::stop_callback by_caller(own.stop, [&stop] { stop.request_stop(); });
    limits.stop = stop.get_token();
    e.last = length;
    e.until = clock.seconds() + length;
    e.stop = &stop;
    run_clock part(limits);
    part_slice slice;
    std::exception_ptr failure;
    lock.unlock();
    try {
      slice = run_guarded(e, now, part);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    e.until = never;
    e.stop = nullptr;
    clock.work(part.work_done());
    if (part.is_out_of_memory()) clock.note_out_of_memory();
    slice_ended_.notify_all();
    if (failure) std::rethrow_exception(failure);
    take(e, slice, cost(part));
    if (is_done()) end_running_slices();
  }

  void run_slices(const slices& next, run_clock& clock) {
    const double share = share_of(next.length, clock);
    for (const std::size_t i : next.parts) entries_[i].last = next.length;
    if (next.parts.size() == 1) return run_slice(entries_[next.parts[0]], clock, share);

    // The rest of a work limit is for all parts of this round together.
    const std::size_t n = next.parts.size();
    const run_control limits = clock.limits(counted_ ? std::min(share, 0.9 / static_cast<double>(n)) : share);
    const pool_view now = pool_.view();
    std::vector<part_slice> found(n);
    std::vector<double> costs(n);
    std::vector<std::uint64_t> work(n);
    std::vector<std::uint8_t> out_of_memory(n);
    piece_list pieces;
    pieces.count = n;
    pieces.limits = [&](std::size_t, std::size_t) { return limits; };
    pieces.run = [&](std::size_t k, const run_control& own) {
      run_clock part(own);
      found[k] = run_guarded(entries_[next.parts[k]], now, part);
      costs[k] = cost(part);
      work[k] = part.work_done();
      out_of_memory[k] = part.is_out_of_memory();
    };
    run_control control = limits;
    if (clock.is_heard()) control.on_progress = [&](const progress& news) { clock.report(news); };
    if (has_crew(clock)) {
      for (std::size_t k = 0; k < n; ++k) pieces.run(k, control);  // each with the whole crew
    } else {
      run_pieces(pieces, control);
    }
    for (std::size_t k = 0; k < n; ++k) {
      clock.work(work[k]);
      if (out_of_memory[k]) clock.note_out_of_memory();
      take(entries_[next.parts[k]], found[k], costs[k]);
    }
  }

  [[nodiscard]] static part_slice run_guarded(const entry& e, const pool_view& now, run_clock& part) {
    part_slice slice;
    if (!within_memory([&] { slice = e.part.run(now, part); })) {
      part.note_out_of_memory();
      slice.ended = true;  // it would need no less the next time
    }
    slice.found.statistics.seconds = part.seconds();
    slice.found.statistics.work = part.work_done();
    return slice;
  }

  [[nodiscard]] double cost(const run_clock& part) const {
    return counted_ ? static_cast<double>(part.work_done()) : part.seconds();
  }

  /// Takes what a slice has found, and judges the part by it.
  void take(entry& e, part_slice& slice, double cost) {
    e.cost += cost;
    e.idle = cost > 0 ? 0 : e.idle + 1;
    e.ended = e.ended || slice.ended || e.idle == most_idle;
    const double before = open_gap();
    pool_.put(slice.found, e.part.name);
    if (on_slice) on_slice(e.part.name, slice.found);
    if (e.part.publish) pool_.note(e.part.publish);
    const double gain = gain_since(before);
    if (gain >= good) e.merit = std::min(highest_merit, 2 * e.merit);
    if (gain < poor) e.merit = std::max(1 / highest_merit, e.merit / 2);
  }
  /// The part of the gap `before` that has been closed since; a first schedule closes all of it.
  [[nodiscard]] double gain_since(double before) const {
    if (!(before > 0)) return 0;
    return 1 - (std::isfinite(before) ? open_gap() / before : pool_.best().plan ? 0 : 1);
  }
  [[nodiscard]] double open_gap() const {
    return pool_.read([](const pool_view& now) { return now.open_gap(); });
  }

  pool& pool_;
  double gap_;
  std::vector<entry> entries_;
  double first_slice_ = 0;
  bool counted_ = false;

  // The state of the lanes.
  std::mutex mutex_;  // guards all members, but parts that run
  std::condition_variable slice_ended_;
  entry* closing_ = nullptr;         // the part that is to have the rest
  bool has_begun_to_close_ = false;  // one lane has given it a slice
};

}  // namespace REMAT_NAMESPACE::detail
