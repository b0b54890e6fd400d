// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/refine/refine.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/team.hpp"
#include "remat/core/error.hpp"
#include "remat/refine/detail/moves.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"

namespace REMAT_NAMESPACE {

namespace detail::refinement {

/// One search: a timeline, its moves, and the best schedule that the search has seen.
class annealing_search {
 public:
  /// `must_stop`: see `refine_moves`; called on the thread of the search.
  annealing_search(const problem& p, std::uint64_t seed, std::function<bool()> must_stop)
      : plan_(p), moves_(plan_, seed) {
    moves_.must_stop = std::move(must_stop);
  }

  /// Continues from a legal schedule within the budget. What was found before is forgotten.
  void start(const schedule& from) {
    plan_.load(from);
    plan_.keep();
    best_time_ = plan_.time();
    best_ = plan_.computes();
  }

  /// Makes at most `moves` moves. The temperature falls from `hot` (in units of the mean time per recomputation) to 0
  /// while `fraction(moves made)` rises from 0 to 1, which ends the round.
  template <class Fraction>
  void anneal(double hot, std::uint64_t moves, Fraction&& fraction) {
    const double scale = hot * time_per_recomputation();
    for (std::uint64_t i = 0; i < moves; ++i) {
      if (i % poll_stride == 0) {
        const double f = fraction(i);
        if (f >= 1) break;
        moves_.temperature = f > 0.9 ? 0 : scale * (1 - f) * (1 - f);
      }
      ++made_;
      if (!moves_.random_move() || plan_.time() >= best_time_ * (1 - rounding_error)) continue;
      best_time_ = plan_.time();
      best_ = plan_.computes();
    }
  }

  [[nodiscard]] double best_time() const noexcept { return best_time_; }
  [[nodiscard]] const std::vector<std::uint32_t>& best() const noexcept { return best_; }
  [[nodiscard]] std::uint64_t moves() const noexcept { return made_; }

 private:
  static constexpr std::uint64_t poll_stride = 32;

  /// The time beyond the needed operations, for each compute that could be removed: the scale on which one move changes
  /// the time.
  [[nodiscard]] double time_per_recomputation() const {
    std::size_t recomputations = 0;
    for (timeline::node x = plan_.next(timeline::head); x != timeline::tail; x = plan_.next(x))
      recomputations += plan_.removable(x);
    const double excess = std::max(0.0, plan_.time() - plan_.graph().needed_time);
    return recomputations == 0 ? 0 : excess / static_cast<double>(recomputations);
  }

  timeline plan_;
  refine_moves moves_;
  std::vector<std::uint32_t> best_;
  double best_time_ = std::numeric_limits<double>::infinity();
  std::uint64_t made_ = 0;
};

/// One call of `refine`.
class refinement {
 public:
  refinement(const problem& p, const refine_options& options)
      : p_(p),
        options_(options),
        clock_(options.run),
        searches_(searches_of(options, p.graph().num_operations)),
        rounds_(std::max(1U, options.rounds)),
        threads_(std::clamp<std::size_t>(options.run.thread_count(), 1, searches_)),
        by_work_(options.run.work_limit != run_control::no_work_limit ||
                 options.run.time_limit == std::chrono::nanoseconds::max()),
        limit_(std::chrono::duration<double>(options.run.time_limit).count()) {
    if (std::isnan(options.lower_bound)) throw bad_argument("refine: the lower bound is not a number");
    if (!(options.gap >= 0))
      throw bad_argument("refine: gap is " + std::to_string(options.gap) + "; it must be 0 or more");
  }

  refine_result run(std::span<const schedule> starts) {
    take_starts(starts);
    const double target = std::max(options_.lower_bound, p_.graph().needed_time) * (1 + options_.gap);
    try {
      for (cycle c = first_cycle();; c = cycle_after(c)) {
        for (std::uint32_t round = 0; round < rounds_; ++round) {
          run_round(c, round);
          take_best();
          if (is_optimal(result_.time, target) || must_stop()) break;
          exchange();
        }
        if (c.is_last || is_optimal(result_.time, target) || must_stop()) break;
      }
    } catch (const std::bad_alloc&) {
      result_.out_of_memory = true;
    }
    result_.moves = moves_made();
    result_.stopped = options_.run.stop.stop_requested() ? stop_reason::cancelled
                      : clock_.seconds() >= limit_       ? stop_reason::deadline
                      : by_work_                         ? stop_reason::work
                                                         : stop_reason::none;
    return std::move(result_);
  }

 private:
  /// One fall of the temperature from hot to cold, in all rounds. Each cycle is some times as long as the one before,
  /// so that a time limit does not decide how long an easy graph waits; the last one takes all that is left.
  struct cycle {
    std::uint64_t moves = 0;  // of all searches; the last cycle under a time limit alone has no number of moves
    double begin = 0;         // seconds
    bool is_last = false;
  };
  static constexpr std::uint64_t longer = 4;  // each cycle than the one before

  [[nodiscard]] static std::uint32_t searches_of(const refine_options& options, std::uint32_t operations) {
    // Each search holds a timeline, which takes some 200 bytes an operation.
    constexpr std::uint32_t most_operations = 1U << 18;
    return std::clamp(options.searches, 1U, std::max(2U, most_operations / std::max(1U, operations)));
  }

  [[nodiscard]] std::uint64_t all_moves() const {
    return options_.run.work_limit != run_control::no_work_limit ? options_.run.work_limit / work_of::move
                                                                 : options_.default_moves;
  }
  [[nodiscard]] std::uint64_t moves_made() const {
    std::uint64_t sum = 0;
    for (const auto& search : all_) sum += search->moves();
    return sum;
  }

  /// A short one, which shows how long a move takes.
  [[nodiscard]] cycle first_cycle() const {
    return fitted({.moves = 32 * std::uint64_t{searches_} * rounds_, .begin = clock_.seconds()});
  }
  [[nodiscard]] cycle cycle_after(const cycle& c) {
    cycle next{.moves = std::max(c.moves * longer, 8 * std::uint64_t{p_.graph().num_operations} + 2000),
               .begin = clock_.seconds()};
    seconds_per_move_ = (next.begin - c.begin) / static_cast<double>(c.moves);
    return fitted(next);
  }
  /// `c` as the last cycle if the limits have no room for a longer one after it.
  [[nodiscard]] cycle fitted(cycle c) const {
    if (by_work_) {
      const std::uint64_t left = all_moves() - std::min(all_moves(), moves_made());
      if (left / (1 + longer / 2) < c.moves) c = {left, c.begin, true};
    } else if ((limit_ - c.begin) < static_cast<double>((1 + longer / 2) * c.moves) * seconds_per_move_) {
      c.is_last = true;
    }
    return c;
  }

  /// Checks the starts, makes the fastest one the result, and gives the four fastest to the searches.
  void take_starts(std::span<const schedule> starts) {
    std::vector<std::pair<double, const schedule*>> ranked;
    for (const schedule& s : starts) {
      const check_report r = check(p_, s);
      if (!r.valid()) throw bad_argument("refine: a schedule to start from is not usable: " + r.message());
      if (s.has_copies())
        throw bad_argument("refine: a schedule to start from copies tensors to the host, which no move can do yet");
      ranked.emplace_back(r.time, &s);
    }
    if (ranked.empty()) throw bad_argument("refine: there is no schedule to start from");
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    result_.plan = simplify(p_, *ranked.front().second);
    const check_report taken = check(p_, result_.plan);
    result_.time = taken.time;
    result_.peak_bytes = taken.peak_bytes;
    for (std::size_t i = 0; i < searches_; ++i) {
      all_.push_back(
          std::make_unique<annealing_search>(p_, options_.run.seed * 1000003 + i, [this] { return must_stop(); }));
      all_.back()->start(*ranked[i % std::min<std::size_t>(ranked.size(), 4)].second);
    }
  }

  /// True when a stop was requested or the deadline has passed. May be called on any thread.
  [[nodiscard]] bool must_stop() const {
    return failed_.load(std::memory_order_relaxed) || options_.run.stop.stop_requested() || clock_.seconds() >= limit_;
  }

  /// Runs each search once, on all threads. Thread k runs searches k, k + threads, …; a search depends on nothing that
  /// another one does in this round.
  void run_round(const cycle& c, std::uint32_t round) {
    run_team(threads_, [&](std::size_t k) {
      try {
        run_searches(c, k, round);
      } catch (...) {
        failed_ = true;  // the others need not go on
        throw;
      }
    });
  }

  void run_searches(const cycle& c, std::size_t thread, std::uint32_t round) {
    static constexpr double heats[] = {1.2, 0.5, 2.5, 0.2};
    const double cooling = 1.0 - 0.8 * round / rounds_;
    const bool by_moves = by_work_ || !c.is_last;
    for (std::size_t i = thread; i < searches_; i += threads_) {
      const std::uint64_t moves = by_moves ? moves_of(c, round, i) : run_control::no_work_limit;
      const double begin = clock_.seconds();
      const double end = c.begin + (limit_ - c.begin) * (round + 1) / rounds_;
      const double slice = (end - begin) / static_cast<double>((searches_ - i + threads_ - 1) / threads_);
      all_[i]->anneal(heats[i % std::size(heats)] * cooling, moves, [&](std::uint64_t made) {
        if (must_stop()) return 2.0;
        if (thread == 0 && made % 4096 == 0) report(all_[i]->best_time(), made, by_moves ? moves : 0);
        if (by_moves) return static_cast<double>(made) / static_cast<double>(moves);
        return slice > 0 ? (clock_.seconds() - begin) / slice : 2.0;
      });
    }
  }

  /// The share of one search in one round of the moves of a cycle. The shares add up to them.
  [[nodiscard]] std::uint64_t moves_of(const cycle& c, std::uint32_t round, std::size_t search) const {
    const std::uint64_t shares = std::uint64_t{searches_} * rounds_;
    return c.moves / shares + (round * std::uint64_t{searches_} + search < c.moves % shares ? 1 : 0);
  }

  void report(double best_time, std::uint64_t done, std::uint64_t total) {
    clock_.report({.solver = "refine",
                   .stage = "refinement",
                   .best_objective = std::min(result_.time, best_time),
                   .lower_bound = options_.lower_bound,
                   .done = done,
                   .total = total});
  }

  /// The best schedule of the searches becomes the result if it is faster.
  void take_best() {
    const annealing_search& best = **std::min_element(all_.begin(), all_.end(), is_faster);
    if (best.best_time() >= result_.time) return;
    schedule plan = schedule_computes(p_, best.best());
    const check_report r = check(p_, plan);
    if (!r.valid()) throw internal_error("refine made an invalid schedule: " + r.message());
    if (r.time >= result_.time) return;
    result_.time = r.time;
    result_.peak_bytes = r.peak_bytes;
    result_.plan = std::move(plan);
  }

  /// The worst search continues from the best schedule, the others from their own best.
  void exchange() {
    const std::vector<std::uint32_t> leader = (*std::min_element(all_.begin(), all_.end(), is_faster))->best();
    const auto worst = std::max_element(all_.begin(), all_.end(), is_faster);
    for (auto search = all_.begin(); search != all_.end(); ++search)
      (*search)->start(schedule_computes(p_, search == worst ? leader : (*search)->best()));
  }

  static bool is_faster(const std::unique_ptr<annealing_search>& a, const std::unique_ptr<annealing_search>& b) {
    return a->best_time() < b->best_time();
  }

  const problem& p_;
  const refine_options& options_;
  run_clock clock_;
  std::uint32_t searches_, rounds_;
  std::size_t threads_;
  bool by_work_;
  double limit_;                     // seconds
  double seconds_per_move_ = 0;      // of all threads together, in the last cycle
  std::atomic<bool> failed_{false};  // a search has thrown
  std::vector<std::unique_ptr<annealing_search>> all_;
  refine_result result_;
};

}  // namespace detail::refinement

REMAT_INLINE refine_result refine(const problem& p, std::span<const schedule> starts, const refine_options& options) {
  return detail::refinement::refinement(p, options).run(starts);
}

}  // namespace REMAT_NAMESPACE
