// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/refine/refine.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/splitmix64.hpp"
#include "remat/core/detail/within_memory.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/refine/detail/annealing.hpp"
#include "remat/refine/detail/moves.hpp"
#include "remat/refine/detail/timeline.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"

namespace REMAT_NAMESPACE {

namespace detail::refinement {

/// A timeline and its moves. A round depends on nothing that the same object did before.
class annealing_search {
 public:
  static constexpr std::string_view kind = "refine";
  struct start {
    std::vector<std::uint32_t> computes{};  // a legal schedule within the budget
    double hot = 0;                         // the first temperature, in mean times of a recomputation
  };
  struct answer {
    std::vector<std::uint32_t> computes{};
    double time = std::numeric_limits<double>::infinity();
    std::uint64_t moves = 0;  // made; 0: the rest says nothing
  };

  explicit annealing_search(const problem& p) : plan_(p), moves_(plan_) {}
  annealing_search(const annealing_search&) = delete;  // the moves refer to the plan
  annealing_search& operator=(const annealing_search&) = delete;

  /// One round: the temperature falls to 0 while the limits are spent: the moves that a work limit allows, or without
  /// one the time. Returns the best schedule seen.
  [[nodiscard]] answer anneal(const start& from, const run_control& limits) {
    run_clock clock(limits);
    const bool counted = limits.has_work_limit();
    const std::uint64_t moves = counted ? limits.work_limit / work_of::move : run_control::no_work_limit;
    if (moves == 0 || clock.should_stop()) return {};
    plan_.load(from.computes);
    plan_.keep();
    moves_.begin(limits.seed);
    moves_.must_stop = [&clock] { return clock.should_stop(); };
    answer best{plan_.computes(), plan_.time()};
    const double scale = from.hot * time_per_recomputation(plan_);
    const double seconds = std::chrono::duration<double>(limits.time_limit).count();
    for (; best.moves < moves; ++best.moves) {
      if (best.moves % poll_stride == 0) {
        if (clock.should_stop()) break;
        const double f =
            counted ? static_cast<double>(best.moves) / static_cast<double>(moves) : clock.seconds() / seconds;
        moves_.temperature = falling_temperature(scale, f);
        if (best.moves % report_stride == 0)
          clock.report({.solver = "refine",
                        .stage = "refinement",
                        .best_objective = best.time,
                        .done = best.moves,
                        .total = counted ? moves : 0});
      }
      if (!moves_.random_move() || plan_.time() >= best.time * (1 - rounding_error)) continue;
      best.time = plan_.time();
      best.computes = plan_.computes();
    }
    moves_.must_stop = nullptr;
    return best;
  }
  [[nodiscard]] static bool is_legal(const problem& p, const answer& found) {
    return found.moves == 0 || is_legal_sequence(p, found.computes);
  }

 private:
  static constexpr std::uint64_t poll_stride = 32, report_stride = 4096;

  timeline plan_;
  refine_moves moves_;
};

void fields_of(auto& bytes, maybe_const<annealing_search::start> auto& x) { bytes(x.computes, x.hot); }
void fields_of(auto& bytes, maybe_const<annealing_search::answer> auto& x) { bytes(x.computes, x.time, x.moves); }

/// One call of `refine`.
class refinement {
 public:
  refinement(const problem& p, const refine_options& options)
      : p_(p),
        options_(options),
        clock_(options.run),
        searches_(searches_of(options, p.graph().num_operations)),
        rounds_(std::max(1U, options.rounds)),
        by_work_(options.run.has_work_limit() || !options.run.has_time_limit()),
        limit_(std::chrono::duration<double>(options.run.time_limit).count()),
        population_(p) {
    if (std::isnan(options.lower_bound)) throw bad_argument("refine: the lower bound is not a number");
    if (!(options.gap >= 0))
      throw bad_argument("refine: gap is " + detail::number_text(options.gap) + "; it must be 0 or more");
  }

  refine_result run(std::span<const schedule> starts) {
    take_starts(starts);
    const double target = std::max(options_.lower_bound, p_.graph().needed_time) * (1 + options_.gap);
    if (!within_memory([&] { run_cycles(target); })) result_.out_of_memory = true;
    result_.moves = moves_made_;
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
    std::uint64_t number = 0;
    std::uint64_t moves = 0;  // moves of all searches; the last cycle under a time limit alone has no number of moves
    double begin = 0;         // seconds
    bool is_last = false;
  };
  static constexpr std::uint64_t longer = 4;  // each cycle is so many times as long as the one before
  static constexpr double near_gap = 0.01;

  void run_cycles(double target) {
    for (cycle c = first_cycle();; c = cycle_after(c)) {
      for (std::uint32_t round = 0; round < rounds_; ++round) {
        run_round(c, round);
        take_best();
        if (is_optimal(result_.time, target) || must_stop()) return;
        // Far from the bound once in a cycle: else all searches would soon go on from one schedule, and another may
        // lead farther.
        if (is_near_bound() || round + 1 == rounds_) exchange(all_);
      }
      if (c.is_last) return;
    }
  }

  [[nodiscard]] static std::uint32_t searches_of(const refine_options& options, std::uint32_t operations) {
    // On a large graph, each of many searches would make few moves.
    constexpr std::uint32_t most_operations = 1U << 18;
    return std::clamp(options.searches, 1U, std::max(2U, most_operations / std::max(1U, operations)));
  }

  [[nodiscard]] std::uint64_t all_moves() const {
    return options_.run.has_work_limit() ? options_.run.work_limit / work_of::move : options_.default_moves;
  }

  /// A short one, which shows how long a move takes.
  [[nodiscard]] cycle first_cycle() const {
    return fitted({.moves = 32 * std::uint64_t{searches_} * rounds_, .begin = clock_.seconds()});
  }
  [[nodiscard]] cycle cycle_after(const cycle& c) {
    cycle next{.number = c.number + 1,
               .moves = std::max(c.moves * longer, 8 * std::uint64_t{p_.graph().num_operations} + 2000),
               .begin = clock_.seconds()};
    seconds_per_move_ = (next.begin - c.begin) / static_cast<double>(c.moves);
    return fitted(next);
  }
  /// `c` as the last cycle if the limits allow no longer one after it.
  [[nodiscard]] cycle fitted(cycle c) const {
    if (by_work_) {
      const std::uint64_t left = all_moves() - std::min(all_moves(), moves_made_);
      if (left / (1 + longer / 2) < c.moves) {
        c.moves = left;
        c.is_last = true;
      }
    } else if ((limit_ - c.begin) < static_cast<double>((1 + longer / 2) * c.moves) * seconds_per_move_) {
      c.is_last = true;
    }
    return c;
  }

  /// Checks the starts, makes the fastest one the result, and gives the fastest ones to the searches.
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
      const auto& [time, from] = ranked[i % ranked.size()];
      all_.push_back({computes_of(*from), time});
    }
  }

  /// True when a stop was requested or the deadline has passed.
  [[nodiscard]] bool must_stop() const { return options_.run.stop.stop_requested() || clock_.seconds() >= limit_; }

  /// Runs each search once, as a piece. A search depends on nothing that another one does in this round.
  void run_round(const cycle& c, std::uint32_t round) {
    static constexpr double heats[] = {1.2, 0.5, 2.5, 0.2};
    const double cooling = 1.0 - 0.8 * round / rounds_;
    std::vector<annealing_search::start> starts;
    for (std::size_t i = 0; i < searches_; ++i)
      starts.push_back({all_[i].computes, heats[i % std::size(heats)] * cooling});
    std::size_t begun = 0;
    const auto limits_of = [&](std::size_t i, std::size_t members) {
      run_control limits;
      limits.stop = options_.run.stop;
      limits.seed = seed_of(c, round, i);
      if (by_work_ || !c.is_last) {
        limits.time_limit = clock_.left();
        limits.work_limit = moves_of(c, round, i) * work_of::move;
      } else {
        const double end = c.begin + (limit_ - c.begin) * (round + 1) / rounds_;
        const std::size_t turns = (searches_ - begun + members - 1) / members;
        const std::chrono::duration<double> slice((end - clock_.seconds()) / static_cast<double>(turns));
        limits.time_limit = std::clamp(std::chrono::duration_cast<std::chrono::nanoseconds>(slice),
                                       std::chrono::nanoseconds(0), clock_.left());
      }
      ++begun;
      return limits;
    };
    run_control control = options_.run;
    const bool by_moves = by_work_ || !c.is_last;
    if (!is_worth_messages(by_moves ? moves_of(c, round, 0) * work_of::move : run_control::no_work_limit,
                           std::chrono::duration<double>((limit_ - c.begin) / rounds_)))
      control.crew = nullptr;
    if (control.on_progress)
      control.on_progress = [&](progress news) {
        news.best_objective = std::min(news.best_objective, result_.time);
        news.lower_bound = options_.lower_bound;
        clock_.report(news);
      };
    std::vector<annealing_search::answer> answers = population_.run(starts, limits_of, control);
    for (std::size_t i = 0; i < searches_; ++i) {
      moves_made_ += answers[i].moves;
      if (answers[i].moves > 0) all_[i] = std::move(answers[i]);
    }
  }

  [[nodiscard]] std::uint64_t seed_of(const cycle& c, std::uint32_t round, std::size_t search) const {
    std::uint64_t seed = splitmix64(options_.run.seed);
    for (const std::uint64_t number : {c.number, std::uint64_t{round}, std::uint64_t{search}})
      seed = splitmix64(seed ^ number);
    return seed;
  }

  /// The share of one search in one round of the moves of a cycle. The shares add up to them.
  [[nodiscard]] std::uint64_t moves_of(const cycle& c, std::uint32_t round, std::size_t search) const {
    const std::uint64_t shares = std::uint64_t{searches_} * rounds_;
    return c.moves / shares + (round * std::uint64_t{searches_} + search < c.moves % shares ? 1 : 0);
  }

  /// The best schedule of the searches becomes the result if it is faster.
  void take_best() {
    const annealing_search::answer& best =
        *std::min_element(all_.begin(), all_.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
    if (best.time >= result_.time) return;
    schedule plan = schedule_computes(p_, best.computes);
    const check_report r = check(p_, plan);
    if (!r.valid()) throw internal_error("refine made an invalid schedule: " + r.message());
    if (r.time >= result_.time) return;
    result_.time = r.time;
    result_.peak_bytes = r.peak_bytes;
    result_.plan = std::move(plan);
  }

  [[nodiscard]] bool is_near_bound() const { return result_.time <= options_.lower_bound * (1 + near_gap); }

  const problem& p_;
  const refine_options& options_;
  run_clock clock_;
  std::uint32_t searches_, rounds_;
  bool by_work_;
  double limit_;                  // seconds
  double seconds_per_move_ = 0;   // time per move of all searches together, in the last cycle
  std::uint64_t moves_made_ = 0;  // moves by all searches together
  annealing_population<annealing_search> population_;
  std::vector<annealing_search::answer> all_;  // each search's best schedule, from which it goes on
  refine_result result_;
};

}  // namespace detail::refinement

REMAT_INLINE piece_kind refine_pieces() {
  return detail::annealing_population<detail::refinement::annealing_search>::pieces();
}

REMAT_INLINE refine_result refine(const problem& p, std::span<const schedule> starts, const refine_options& options) {
  return detail::refinement::refinement(p, options).run(starts);
}

}  // namespace REMAT_NAMESPACE
