// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/byte_stream.hpp"
#include "remat/core/detail/spent_share.hpp"
#include "remat/core/detail/splitmix64.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/annealing.hpp"
#include "remat/refine/detail/copy_refinement.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/detail/schedule_bytes.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// `copy_refinement` as a search of an `annealing_population`.
class copy_searches {
 public:
  static constexpr std::string_view kind = "copies";
  struct start {
    copy_refinement::state state{};
    double heat = 0;                  // the first temperature, in times beyond the needed one for each choice
    double lower_bound = 0, gap = 0;  // when the search may end
  };
  struct answer {
    copy_refinement::state state{};  // the best schedule's state
    schedule plan{};
    double time = std::numeric_limits<double>::infinity();  // its time; infinite: there is none
    std::uint64_t work = 0;
  };

  explicit copy_searches(const problem& p) : p_(p), search_(p) {}

  /// One search in one cycle: the temperature falls to 0 while the limits are spent.
  [[nodiscard]] answer anneal(const start& from, const run_control& limits) {
    run_clock own(limits);
    answer out;
    search_.begin(limits.seed);
    search_.planner.must_stop = [&own] { return own.should_stop(); };
    if (search_.start(from.state)) {
      const double beyond = search_.time() - p_.graph().needed_time;
      const double scale = from.heat * beyond / static_cast<double>(1 + search_.num_choices());
      for (std::uint64_t move = 0; !is_within_gap(search_.best_time(), from.lower_bound, from.gap); ++move) {
        const double f = spent_share(own, static_cast<double>(move) / moves_without_limit);
        if (f >= 1 || own.should_stop()) break;
        search_.temperature = falling_temperature(scale, f);
        own.work(search_.size() * work_of::visit);
        search_.random_move();
        own.report({.stage = "copies", .best_objective = search_.best_time()});
      }
      out.state = search_.best_state();
      out.plan = search_.best();
      out.time = search_.best_time();
    }
    search_.planner.must_stop = nullptr;
    out.work = own.work_done();
    return out;
  }
  [[nodiscard]] static bool is_legal(const problem& p, const answer& found) {
    return !std::isfinite(found.time) || check(p, found.plan).valid();
  }

 private:
  static constexpr double moves_without_limit = 2000;

  const problem& p_;
  copy_refinement search_;
};

void fields_of(auto& bytes, maybe_const<copy_refinement::state> auto& x) {
  bytes(x.computes, x.bytes_exponent, x.lead, x.factor);
}
void fields_of(auto& bytes, maybe_const<copy_searches::start> auto& x) { bytes(x.state, x.heat, x.lower_bound, x.gap); }
void fields_of(auto& bytes, maybe_const<copy_searches::answer> auto& x) { bytes(x.state, x.plan, x.time, x.work); }

/// Refinement of recomputation and copies together (`copy_refinement`), within the limits of a clock.
class copy_annealing {
 public:
  /// All arguments must outlive this object.
  copy_annealing(const problem& p, double gap, run_clock& clock, solution& best, std::string_view solver)
      : p_(p), gap_(gap), clock_(clock), best_(best), solver_(solver), population_(p) {}

  /// Runs searches of several temperatures from `starts`, in cycles of which each is some times as long as the one
  /// before.
  void run(std::vector<copy_refinement::state> starts) {
    const std::size_t count = p_.graph().num_operations > most_searched ? 1 : num_searches;
    for (std::size_t i = 0; i < count; ++i) all_.push_back({starts[i % starts.size()]});
    double left = 1 + longer + longer * longer;
    std::uint64_t number = 0;
    for (double length = 1; left > 0 && !is_over(); length *= longer) {
      run_clock cycle = clock_.part(std::min(1.0, length / left), "copies");
      left -= length;
      run_cycle(cycle, number++);
      for (const copy_searches::answer& a : all_)
        if (a.time < best_.time) accept(p_, best_, a.plan, by_part(solver_, "copies"));
      exchange(all_);
    }
  }

 private:
  static constexpr std::size_t num_searches = 4;
  static constexpr std::uint32_t most_searched = 1U << 16;  // operations for more than one search
  static constexpr double heats[] = {0.2, 0.5, 0.1, 1.0};
  static constexpr double longer = 4;  // each cycle than the one before

  [[nodiscard]] bool is_over() const { return clock_.should_stop() || best_.is_within(gap_); }

  /// Lets each search anneal once. One that is stopped before it has a schedule keeps its state.
  void run_cycle(run_clock& cycle, std::uint64_t number) {
    std::vector<copy_searches::start> starts;
    for (std::size_t i = 0; i < all_.size(); ++i)
      starts.push_back({all_[i].state, heats[i % std::size(heats)], best_.lower_bound, gap_});
    run_control control = clock_.control();
    if (control.on_progress) control.on_progress = [&](const progress& news) { cycle.report(news); };
    if (!is_worth_messages(share_of(cycle.work_left(), 1.0 / static_cast<double>(all_.size())), cycle.left()))
      control.crew = nullptr;
    const std::uint64_t seed = splitmix64(splitmix64(cycle.control().seed) ^ number);
    std::vector<copy_searches::answer> answers =
        population_.run(starts, even_limits(cycle, all_.size(), seed), control);
    for (std::size_t i = 0; i < all_.size(); ++i) {
      cycle.work(answers[i].work);
      if (!std::isfinite(answers[i].time)) answers[i].state = std::move(all_[i].state);
      all_[i] = std::move(answers[i]);
    }
  }

  const problem& p_;
  double gap_;
  run_clock& clock_;
  solution& best_;
  std::string_view solver_;
  annealing_population<copy_searches> population_;
  std::vector<copy_searches::answer> all_;  // the searches go on from their states
};

/// Anneals from `starts`, if there are any, with what is left of the limits of `clock`. A schedule that is faster than
/// that of `best` is taken as found by "SOLVER/copies". Ends when `best` is within `gap` of its bound.
inline void anneal_copies(const problem& p, std::vector<copy_refinement::state> starts, double gap, run_clock& clock,
                          solution& best, std::string_view solver) {
  if (!starts.empty()) copy_annealing(p, gap, clock, best, solver).run(std::move(starts));
}

}  // namespace REMAT_NAMESPACE::detail
