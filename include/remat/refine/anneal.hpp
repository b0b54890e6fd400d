// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/moves.hpp"
#include "remat/refine/timeline.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"

namespace remat {

struct refine_options {
  double lower_bound = 0;      ///< proven; the search ends when it is met
  std::uint32_t searches = 4;  ///< independent searches, whatever the threads; they meet after every round
  std::uint32_t rounds = 10;
  /// Where neither a time nor a work limit is set: this many moves.
  std::uint64_t default_moves = 200000;
  run_control run{};
};

struct refine_result {
  schedule plan{};  ///< never slower than the best start
  double time = std::numeric_limits<double>::infinity();
  std::int64_t peak_bytes = 0;
  std::uint64_t moves = 0;
  stop_reason stopped = stop_reason::none;
};

namespace detail::refinement {

/// One search: a timeline, its moves, and the best schedule that it has seen.
class searcher {
 public:
  searcher(const problem& p, std::uint64_t seed) : plan_(p), moves_(plan_, seed) {}

  void start(const schedule& from) {
    plan_.load(from);
    plan_.keep();
    best_time_ = plan_.time();
    best_ = plan_.computes();
  }
  void start(std::span<const std::uint32_t> computes) { start(schedule_computes(plan_.graph(), computes)); }

  /// Anneals from the present schedule: the temperature falls from `hot` to 0 while `fraction(moves)` goes from 0 to 1.
  template <class Fraction>
  void anneal(double hot, Fraction&& fraction) {
    // Computes per recomputation: the scale on which one move changes the time.
    std::size_t again = 0;
    for (timeline::node x = plan_.next(timeline::head); x != timeline::tail; x = plan_.next(x))
      again += plan_.removable(x) ? 1U : 0U;
    const double excess = std::max(0.0, plan_.time() - plan_.graph().needed_time);
    const double scale = again == 0 ? 0 : hot * excess / static_cast<double>(again);
    for (std::uint64_t i = 0;; ++i) {
      if (i % stride == 0) {
        const double f = fraction(i);
        if (f >= 1) break;
        moves_.temperature = f > 0.9 ? 0 : scale * (1 - f) * (1 - f);
      }
      ++made_;
      if (!moves_.random_move() || plan_.time() >= best_time_ * (1 - 1e-12)) continue;
      best_time_ = plan_.time();
      best_ = plan_.computes();
    }
  }

  [[nodiscard]] double best_time() const noexcept { return best_time_; }
  [[nodiscard]] const std::vector<std::uint32_t>& best() const noexcept { return best_; }
  [[nodiscard]] std::uint64_t moves() const noexcept { return made_; }
  static constexpr std::uint64_t stride = 32;

 private:
  timeline plan_;
  refine_moves moves_;
  std::vector<std::uint32_t> best_;
  double best_time_ = std::numeric_limits<double>::infinity();
  std::uint64_t made_ = 0;
};

}  // namespace detail::refinement

/// Improves schedules: simulated annealing \cite kirkpatrick1983annealing over the moves of `refine_moves`, each
/// evaluated exactly in the interval that it touches, in several searches that exchange their best after every round.
///
/// Preconditions: every schedule of `starts` is legal and within the budget of `p`; there is at least one. Throws
/// `bad_argument` where that is not so. The result has passed the exact checker.
/// For a seed and a work limit (in moves) the answer is the same for any number of threads. A deadline is kept within
/// some tens of moves. `on_progress` is called between stretches of moves of the calling thread's search.
[[nodiscard]] inline refine_result refine(const problem& p, std::span<const schedule> starts,
                                          const refine_options& options = {}) {
  run_clock clock(options.run);
  refine_result result;
  std::vector<std::pair<double, const schedule*>> ranked;
  for (const schedule& s : starts) {
    const check_report r = check(p, s);
    if (!r.valid()) throw bad_argument("refine: a schedule to start from is not usable: " + r.message());
    ranked.emplace_back(r.time, &s);
  }
  if (ranked.empty()) throw bad_argument("refine: there is no schedule to start from");
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  result.plan = simplify(p, *ranked.front().second);
  result.time = check(p, result.plan).time;

  const std::size_t searches = std::max(1U, options.searches);
  const std::uint32_t rounds = std::max(1U, options.rounds);
  const bool by_work =
      options.run.work_limit != run_control::no_work_limit || options.run.time_limit == std::chrono::nanoseconds::max();
  const std::uint64_t total =
      options.run.work_limit != run_control::no_work_limit ? options.run.work_limit : options.default_moves;
  const std::uint64_t quantum = std::max<std::uint64_t>(1, total / (searches * rounds));
  const double limit = std::chrono::duration<double>(options.run.time_limit).count();
  const std::size_t threads = std::clamp<std::size_t>(options.run.threads, 1, searches);
  const double target = std::max(options.lower_bound, p.graph().needed_time) * (1 + 1e-12);

  std::vector<std::unique_ptr<detail::refinement::searcher>> all;
  for (std::size_t i = 0; i < searches; ++i) {
    all.push_back(std::make_unique<detail::refinement::searcher>(p, options.run.seed * 1000003 + i));
    all.back()->start(*ranked[i % std::min<std::size_t>(ranked.size(), 4)].second);
  }
  static constexpr double heats[] = {1.2, 0.5, 2.5, 0.2};
  bool ended = false;
  for (std::uint32_t round = 0; round < rounds && !ended; ++round) {
    const double cooling = 1.0 - 0.8 * round / rounds;
    // Thread k runs searches k, k + threads, …; what one does depends on nothing that another one does in this round.
    const auto run = [&](std::size_t k) {
      for (std::size_t i = k; i < searches; i += threads) {
        const double begin = clock.seconds();
        const double slice =
            (limit * (round + 1) / rounds - begin) / static_cast<double>((searches - i + threads - 1) / threads);
        all[i]->anneal(heats[i % std::size(heats)] * cooling, [&](std::uint64_t made) {
          if (options.run.stop.stop_requested()) return 2.0;
          const double by_moves = static_cast<double>(made) / static_cast<double>(quantum);
          if (!by_work) {
            const double f = slice > 0 ? (clock.seconds() - begin) / slice : 2.0;
            if (k == 0 && made % 4096 == 0)
              clock.report({.solver = "refine",
                            .stage = "refinement",
                            .best_objective = std::min(result.time, all[i]->best_time()),
                            .lower_bound = options.lower_bound});
            return f;
          }
          if (clock.seconds() > limit) return 2.0;
          if (k == 0 && made % 4096 == 0)
            clock.report({.solver = "refine",
                          .stage = "refinement",
                          .best_objective = std::min(result.time, all[i]->best_time()),
                          .lower_bound = options.lower_bound,
                          .done = made,
                          .total = quantum});
          return by_moves;
        });
      }
    };
    std::vector<std::exception_ptr> failed(threads);
    {
      std::vector<std::jthread> team;
      for (std::size_t k = 1; k < threads; ++k)
        team.emplace_back([&, k] {
          try {
            run(k);
          } catch (...) {
            failed[k] = std::current_exception();
          }
        });
      run(0);
    }
    for (const std::exception_ptr& e : failed)
      if (e) std::rethrow_exception(e);

    std::size_t first = 0, last = 0;
    for (std::size_t i = 0; i < searches; ++i) {
      if (all[i]->best_time() < all[first]->best_time()) first = i;
      if (all[i]->best_time() > all[last]->best_time()) last = i;
    }
    if (all[first]->best_time() < result.time) {
      schedule plan = schedule_computes(p, all[first]->best());
      const check_report r = check(p, plan);
      if (!r.valid()) throw internal_error("refine made an invalid schedule: " + r.message());
      if (r.time < result.time) {
        result.time = r.time;
        result.plan = std::move(plan);
      }
    }
    // The worst search goes on from the best schedule, the others from their own best.
    const std::vector<std::uint32_t> leader = all[first]->best();
    for (std::size_t i = 0; i < searches; ++i) {
      const std::vector<std::uint32_t> own = i == last ? leader : all[i]->best();
      all[i]->start(own);
    }
    ended = result.time <= target || options.run.stop.stop_requested() || clock.seconds() >= limit;
  }
  for (const auto& s : all) result.moves += s->moves();
  result.peak_bytes = check(p, result.plan).peak_bytes;
  result.stopped = options.run.stop.stop_requested() ? stop_reason::cancelled
                   : clock.seconds() >= limit        ? stop_reason::deadline
                   : by_work                         ? stop_reason::work
                                                     : stop_reason::none;
  return result;
}

}  // namespace remat
