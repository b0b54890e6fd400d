// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/random.hpp"
#include "remat/core/detail/spent_share.hpp"
#include "remat/core/detail/splitmix64.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/annealing.hpp"
#include "remat/refine/detail/large_neighbourhood.hpp"
#include "remat/refine/detail/moves.hpp"
#include "remat/refine/detail/timeline.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace REMAT_NAMESPACE::detail {

/// Iterated local search: some hundred hot moves disturb a schedule, windows of the result are solved
/// (`large_neighbourhood`), and the result is taken if it is better, or by chance as in simulated annealing.
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
  large_neighbourhood windows_;
  schedule now_, best_;
  double time_ = std::numeric_limits<double>::infinity(), best_time_ = std::numeric_limits<double>::infinity();
};

/// `window_annealing` as a search of an `annealing_population`.
class window_searches {
 public:
  static constexpr std::string_view kind = "windows";
  struct start {
    std::vector<std::uint32_t> computes{};  // a legal sequence
    double time = 0, target = 0;            // its time, and the one that is enough
  };
  struct answer {
    std::vector<std::uint32_t> computes{};                  // empty: no schedule is better than the one it began with
    double time = std::numeric_limits<double>::infinity();  // their time
    std::uint64_t work = 0;
  };

  explicit window_searches(const problem& p) : p_(p) {}

  /// One search, until a limit is reached or it takes the target.
  [[nodiscard]] answer anneal(const start& from, const run_control& limits) const {
    run_clock own(limits);
    window_annealing search(p_, limits.seed);
    search.start(schedule_computes(p_, from.computes), from.time);
    search.run(own, from.target);
    if (search.best_time() >= from.time) return {.work = own.work_done()};
    return {computes_of(search.best()), search.best_time(), own.work_done()};
  }
  [[nodiscard]] static bool is_legal(const problem& p, const answer& found) {
    return found.computes.empty() || is_legal_sequence(p, found.computes);
  }

 private:
  const problem& p_;
};

void fields_of(auto& bytes, maybe_const<window_searches::start> auto& x) { bytes(x.computes, x.time, x.target); }
void fields_of(auto& bytes, maybe_const<window_searches::answer> auto& x) { bytes(x.computes, x.time, x.work); }

/// Several searches from one schedule, with different seeds, as pieces that a crew may run. Their number does not
/// depend on the threads if the work is limited.
[[nodiscard]] inline std::vector<window_searches::answer> anneal_windows_together(const problem& p,
                                                                                  const schedule& from, double time,
                                                                                  double target, run_clock& clock) {
  const run_control& control = clock.control();
  const std::size_t members = control.crew != nullptr ? control.crew->members() : control.thread_count();
  const std::size_t count = control.has_work_limit() ? 2 : std::clamp<std::size_t>(members, 1, 16);
  const std::vector<window_searches::start> starts(count, {computes_of(from), time, target});
  std::vector<window_searches::answer> found = annealing_population<window_searches>(p).run(
      starts, even_limits(clock, count, splitmix64(control.seed)), control);
  for (const window_searches::answer& one : found) clock.work(one.work);
  return found;
}

}  // namespace REMAT_NAMESPACE::detail
