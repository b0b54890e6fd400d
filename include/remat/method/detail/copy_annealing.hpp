// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/team.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/copy_refinement.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// Refinement of recomputation and copies together (`copy_refinement`), within the limits of a clock.
class copy_annealing {
 public:
  /// All arguments must outlive this object.
  copy_annealing(const problem& p, double gap, run_clock& clock, solution& best, std::string_view solver)
      : p_(p), gap_(gap), clock_(clock), best_(best), solver_(solver) {}

  /// Runs searches of several temperatures from `starts`, in cycles of which each is some times as long as the one
  /// before.
  void run(std::vector<copy_refinement::state> starts) {
    const std::size_t count = p_.graph().num_operations > most_searched ? 1 : num_searches;
    for (std::size_t i = 0; i < count; ++i) {
      searches_.push_back(std::make_unique<copy_refinement>(p_, clock_.control().seed * 1000003 + i));
      states_.push_back(starts[i % starts.size()]);
    }
    double left = 1 + longer + longer * longer;
    for (double length = 1; left > 0 && !is_over(); length *= longer) {
      run_clock cycle = clock_.part(std::min(1.0, length / left), "copies");
      left -= length;
      run_cycle(cycle);
      for (const auto& search : searches_)
        if (search->best_time() < best_.time) accept(p_, best_, search->best(), by_part(solver_, "copies"));
      exchange();
    }
  }

 private:
  static constexpr std::size_t num_searches = 4;
  static constexpr std::uint32_t most_searched = 1U << 16;  // operations for more than one search
  static constexpr double heats[] = {0.2, 0.5, 0.1, 1.0};
  static constexpr double longer = 4;  // each cycle than the one before
  static constexpr double moves_without_limit = 2000;

  [[nodiscard]] bool is_over() const { return clock_.should_stop() || best_.is_within(gap_); }

  /// Lets each search anneal once, on all threads. A search depends on nothing that another one does.
  void run_cycle(run_clock& cycle) {
    const std::size_t count = searches_.size();
    const std::size_t threads = std::min<std::size_t>(clock_.control().thread_count(), count);
    const std::uint64_t work = share_of(cycle.work_left(), 1.0 / static_cast<double>(count));
    std::vector<std::uint64_t> done(count, 0);
    run_team(threads, [&](std::size_t thread) {
      for (std::size_t i = thread; i < count; i += threads) {
        run_control limits = cycle.limits(1.0 / static_cast<double>((count - i + threads - 1) / threads));
        limits.work_limit = work;
        run_clock own(limits);
        anneal(*searches_[i], states_[i], heats[i % std::size(heats)], own, thread == 0);
        done[i] = own.work_done();
      }
    });
    for (const std::uint64_t units : done) cycle.work(units);
  }

  /// One search: the temperature falls to 0 while the limits of `own` are spent.
  void anneal(copy_refinement& search, copy_refinement::state from, double heat, run_clock& own, bool reports) {
    search.planner.must_stop = [&own] { return own.should_stop(); };
    if (search.start(std::move(from))) {
      const double beyond = search.time() - p_.graph().needed_time;
      const double scale = heat * beyond / static_cast<double>(1 + search.num_choices());
      for (std::uint64_t move = 0; !is_within_gap(search.best_time(), best_.lower_bound, gap_); ++move) {
        const double f = spent(own, move);
        if (f >= 1 || own.should_stop()) break;
        search.temperature = f > 0.9 ? 0 : scale * (1 - f) * (1 - f);
        own.work(search.size() * work_of::visit);
        search.random_move();
        if (reports) clock_.report({.stage = "copies", .best_objective = search.best_time()});
      }
    }
    search.planner.must_stop = nullptr;
  }
  /// How much of the limits of a search is spent, from 0 to 1.
  [[nodiscard]] static double spent(const run_clock& own, std::uint64_t moves) {
    const run_control& limits = own.control();
    const bool has_work = limits.work_limit != run_control::no_work_limit;
    const bool has_time = limits.time_limit != std::chrono::nanoseconds::max();
    double out = has_work || has_time ? 0 : static_cast<double>(moves) / moves_without_limit;
    if (has_work)
      out = static_cast<double>(own.work_done()) / static_cast<double>(std::max<std::uint64_t>(1, limits.work_limit));
    if (has_time)
      out = std::max(out, own.seconds() / std::max(1e-9, std::chrono::duration<double>(limits.time_limit).count()));
    return out;
  }

  /// The worst search goes on from the best schedule, the others from their own best. One that was stopped before it
  /// had a schedule begins again.
  void exchange() {
    const auto is_faster = [](const auto& a, const auto& b) { return a->best_time() < b->best_time(); };
    const auto worst = std::max_element(searches_.begin(), searches_.end(), is_faster);
    const auto best = std::min_element(searches_.begin(), searches_.end(), is_faster);
    for (auto search = searches_.begin(); search != searches_.end(); ++search) {
      const copy_refinement& from = search == worst ? **best : **search;
      if (std::isfinite(from.best_time()))
        states_[static_cast<std::size_t>(search - searches_.begin())] = from.best_state();
    }
  }

  const problem& p_;
  double gap_;
  run_clock& clock_;
  solution& best_;
  std::string_view solver_;
  std::vector<std::unique_ptr<copy_refinement>> searches_;
  std::vector<copy_refinement::state> states_;  // from which each goes on
};

/// Anneals from `starts`, if there are any, with what is left of the limits of `clock`. A schedule that is faster than
/// that of `best` is taken as found by "SOLVER/copies". Ends when `best` is within `gap` of its bound.
inline void anneal_copies(const problem& p, std::vector<copy_refinement::state> starts, double gap, run_clock& clock,
                          solution& best, std::string_view solver) {
  if (!starts.empty()) copy_annealing(p, gap, clock, best, solver).run(std::move(starts));
}

}  // namespace REMAT_NAMESPACE::detail
