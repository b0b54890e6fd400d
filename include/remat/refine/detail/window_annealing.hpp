// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/random.hpp"
#include "remat/core/detail/spent_share.hpp"
#include "remat/core/detail/splitmix64.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/detail/problem_bytes.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/moves.hpp"
#include "remat/refine/detail/timeline.hpp"
#include "remat/refine/detail/window_search.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace REMAT_NAMESPACE::detail {

/// Iterated local search: some hundred hot moves disturb a schedule, windows of the result are solved
/// (`window_search`), and the result is taken if it is better, or by chance as in simulated annealing.
///
/// Annealing alone ends where no few moves gain; there, windows find little as well. After a disturbance they find
/// their way to another schedule, often a better one, and most of the windows that a disturbance leaves alone are
/// known.
class window_annealing {
 public:
  /// `p` must outlive the object.
  window_annealing(const problem& p, std::uint64_t seed)
      : p_(p),
        random_(seed),
        plan_(p),
        moves_(plan_, seed),
        windows_(p, {.widths = {16, 32, 64}, .steps = 2, .max_states = {300}}) {}
  window_annealing(const window_annealing&) = delete;  // the moves refer to the timeline
  window_annealing& operator=(const window_annealing&) = delete;

  /// Continues from a legal schedule within the budget, and forgets the best one.
  void start(const schedule& from, double time) {
    now_ = best_ = from;
    time_ = best_time_ = time;
  }

  /// Searches until a limit of the clock is reached, while the temperature falls to 0, or until the best schedule takes
  /// at most `target`. Without limits: `rounds_without_limit` disturbances.
  void run(run_clock& clock, double target) {
    moves_.must_stop = [&clock] { return clock.should_stop(); };
    for (std::uint64_t round = 0; best_time_ > target && !clock.should_stop(); ++round) {
      const double spent = spent_share(clock, static_cast<double>(round) / static_cast<double>(rounds_without_limit));
      if (spent >= 1) break;
      plan_.load(now_);
      plan_.keep();
      const double scale = time_per_recomputation(plan_);
      if (scale == 0) break;
      disturb(scale * least_heat * std::pow(most_heat / least_heat, random_.uniform()), clock);
      windows_.start(plan_.computes());
      if (!windows_.run(clock) && clock.should_stop()) break;
      judge(acceptance * (1 - spent) * scale);
      clock.report({.stage = "windows", .best_objective = best_time_});
    }
    moves_.must_stop = nullptr;
  }

  /// The best schedule since `start`, and its time.
  [[nodiscard]] const schedule& best() const noexcept { return best_; }
  [[nodiscard]] double best_time() const noexcept { return best_time_; }

 private:
  static constexpr std::uint64_t hot_moves = 300, cold_moves = 150, rounds_without_limit = 100;
  static constexpr double least_heat = 3, most_heat = 15, acceptance = 2;  // all are in mean times of a recomputation

  void disturb(double heat, run_clock& clock) {
    for (std::uint64_t k = 0; k < hot_moves + cold_moves && !moves_.must_stop() && spend(clock, work_of::move); ++k) {
      const double f = static_cast<double>(k) / static_cast<double>(hot_moves);
      moves_.temperature = f < 1 ? heat * (1 - f) * (1 - f) : 0;
      moves_.random_move();
    }
  }

  /// Takes the schedule that the windows have made as the present one, or leaves it.
  void judge(double temperature) {
    schedule made = schedule_computes(p_, windows_.computes());
    const check_report report = check(p_, made);
    if (!report.valid()) throw internal_error("windows made an invalid schedule: " + report.message());
    if (report.time < best_time_) {
      best_ = made;
      best_time_ = report.time;
    }
    if (report.time > time_ - temperature * std::log(1.0 - random_.uniform())) return;
    now_ = std::move(made);
    time_ = report.time;
  }

  const problem& p_;
  random_source random_;
  timeline plan_;
  refine_moves moves_;
  window_search windows_;
  schedule now_, best_;
  double time_ = std::numeric_limits<double>::infinity(), best_time_ = std::numeric_limits<double>::infinity();
};

/// The result of one search by `window_annealing`.
struct windows_found {
  std::vector<std::uint32_t> computes{};                  // empty: no schedule is better than the one it began with
  double time = std::numeric_limits<double>::infinity();  // their time
  std::uint64_t work = 0;
};

/// One search from a legal sequence of computes that takes `time`, until a limit is reached or it takes `target`.
[[nodiscard]] inline windows_found anneal_windows(const problem& p, std::span<const std::uint32_t> from, double time,
                                                  double target, const run_control& limits) {
  run_clock own(limits);
  window_annealing search(p, limits.seed);
  search.start(schedule_computes(p, from), time);
  search.run(own, target);
  windows_found out;
  out.work = own.work_done();
  if (search.best_time() >= time) return out;
  out.computes = computes_of(search.best());
  out.time = search.best_time();
  return out;
}

/// Several searches from one schedule, with different seeds, as pieces that a crew may run. Their number does not
/// depend on the threads if the work is limited.
[[nodiscard]] inline std::vector<windows_found> anneal_windows_together(const problem& p, const schedule& from,
                                                                        double time, double target, run_clock& clock) {
  const run_control& control = clock.control();
  const bool is_counted = control.has_work_limit();
  const std::size_t members = control.crew != nullptr ? control.crew->members() : control.thread_count();
  const std::size_t count = is_counted ? 2 : std::clamp<std::size_t>(members, 1, 16);
  const std::vector<std::uint32_t> computes = computes_of(from);
  std::vector<windows_found> found(count);
  piece_list pieces;
  pieces.count = count;
  pieces.size = [](std::size_t) { return 1.0; };
  std::size_t begun = 0;
  pieces.limits = [&](std::size_t i, std::size_t side_by_side) {
    const std::size_t turns = (count - begun++ + side_by_side - 1) / side_by_side;
    run_control limits = clock.limits(1.0 / static_cast<double>(turns));
    limits.work_limit = share_of(clock.work_left(), 1.0 / static_cast<double>(count));
    limits.seed = splitmix64(splitmix64(limits.seed) ^ i);
    return limits;
  };
  pieces.run = [&](std::size_t i, const run_control& limits) {
    found[i] = anneal_windows(p, computes, time, target, limits);
  };
  pieces.kind = "windows";
  pieces.shared = [&] {
    byte_writer out;
    put_graph_and_budget(out, p);
    return out.take();
  };
  pieces.encode = [&](std::size_t) {
    byte_writer out;
    out.put(computes);
    out.put(time);
    out.put(target);
    return out.take();
  };
  pieces.take = [&](std::size_t i, std::span<const std::byte> bytes) {
    byte_reader in(bytes);
    in.get(found[i].computes);
    in.get(found[i].time);
    in.get(found[i].work);
    const std::vector<std::uint32_t>& made = found[i].computes;
    if (!made.empty() && *std::max_element(made.begin(), made.end()) >= p.graph().num_operations)
      throw error("windows: another process returned operations that the graph does not have");
  };
  run_pieces(pieces, control);
  for (const windows_found& one : found) clock.work(one.work);
  return found;
}

/// The kind of the pieces of `anneal_windows_together`.
[[nodiscard]] inline piece_kind portable_windows() {
  const auto open = [](std::span<const std::byte> shared) -> piece_kind::runner {
    byte_reader in(shared);
    const auto p = std::make_shared<const problem>(get_graph_and_budget(in));
    return [p](std::span<const std::byte> piece, const run_control& run) {
      byte_reader from(piece);
      std::vector<std::uint32_t> computes;
      from.get(computes);
      const auto time = from.get<double>(), target = from.get<double>();
      const windows_found found = anneal_windows(*p, computes, time, target, run);
      byte_writer out;
      out.put(found.computes);
      out.put(found.time);
      out.put(found.work);
      return out.take();
    };
  };
  return {"windows", open};
}

}  // namespace REMAT_NAMESPACE::detail
