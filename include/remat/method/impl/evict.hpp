// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/evict.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <memory>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/random.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/impl/reordering.hpp"
#include "remat/refine/detail/eviction_pass.hpp"
#include "remat/refine/detail/moves.hpp"
#include "remat/refine/detail/retention.hpp"
#include "remat/refine/detail/timeline.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/accept.hpp"

namespace REMAT_NAMESPACE {

namespace detail::evict_solve {

/// Passes that run the operations in another order than the listed one.
struct reordered_passes {
  explicit reordered_passes(const problem& p, std::vector<std::uint32_t> order)
      : problem_in_order(p, std::move(order)), pass(problem_in_order.instance) {}
  reordered_passes(const reordered_passes&) = delete;  // the pass refers to the problem
  reordered_passes& operator=(const reordered_passes&) = delete;

  reordering problem_in_order;
  eviction_pass pass;
};

/// The passes, repairs and fill of one call of `evict`.
class eviction_search {
 public:
  eviction_search(const problem& p, const evict_options& options, run_clock& clock, solution& best)
      : p_(p), options_(options), clock_(clock), best_(best), pass_(p), kept_(factor_to_keep(p, options.keep)) {
    factor_ = kept_;
  }

  void run() {
    run_fixed_passes(p_.budget(), best_);
    if (!best_.plan && options_.insist && !stopped()) squeeze();
    if (!best_.plan && options_.insist && !stopped()) run_deep_passes();
    if (!best_.plan && options_.insist && !stopped()) repeat_failed_passes();
    if (!best_.plan && options_.insist && !stopped()) climb();
    run_random_passes();
    if (best_.plan && !stopped()) fill();
    if (!stopped()) stopped_ = clock_.poll();
  }

  [[nodiscard]] stop_reason reason() const noexcept { return stopped_; }

 private:
  [[nodiscard]] bool stopped() const noexcept { return stopped_ != stop_reason::none; }

  /// Makes one pass and offers its schedule to `into`. Returns true if the pass reached the end. `reordered`: for
  /// another order than the listed one.
  bool run_pass(std::int64_t budget, const eviction_weights& weights, solution& into,
                reordered_passes* reordered = nullptr) {
    stopped_ = clock_.poll();
    if (stopped()) return false;
    // A pass may run operations in vain that `schedule_computes` leaves out: so it may take somewhat more time than the
    // best schedule. Without any, a pass that recomputes too much is left to `squeeze`, which does better there.
    const double needed = p_.graph().needed_time;
    const double first = weights.hardest_first ? 60 * needed : budget == p_.budget() ? 2.5 * needed : 8 * needed;
    const double longest = into.plan ? into.time + 0.1 * (into.time - needed) : first;
    eviction_pass& pass = reordered ? reordered->pass : pass_;
    const bool complete = pass.run(budget, weights, factor_, longest, clock_);
    if (complete) {
      std::vector<std::uint32_t> computes = pass.computes();
      if (reordered)
        for (std::uint32_t& o : computes) o = reordered->problem_in_order.original(o);
      accept(p_.with_budget(budget), into, schedule_computes(p_, computes), evict_solver::name);
    }
    clock_.report({.stage = "eviction"});
    return complete;
  }

  void run_fixed_passes(std::int64_t budget, solution& into) {
    for (const bool keep_sources : {false, true})
      for (eviction_weights weights : fixed_weights) {
        if ((into.plan && into.time <= p_.graph().needed_time) || (keep_sources && !pass_.met_sources())) return;
        weights.keep_sources = keep_sources;
        run_pass(budget, weights, into);
      }
  }

  /// Passes for budgets so tight that the order of recomputations decides. A pass that fails is repeated, with more
  /// weight on the tensors that it had no memory to recompute.
  void run_deep_passes() {
    for (eviction_weights weights : fixed_weights) {
      weights.hardest_first = true;
      weights.keep_sources = pass_.met_sources();
      repeat_pass(weights);
      if (stopped()) return;
    }
  }

  /// Makes a pass until it reaches the end, at most eight times.
  void repeat_pass(const eviction_weights& weights) {
    std::fill(factor_.begin(), factor_.end(), 1.0F);
    for (int repeat = 0; repeat < 8; ++repeat) {
      if (run_pass(p_.budget(), weights, best_) || pass_.wanted().empty()) break;
      for (const std::uint32_t t : pass_.wanted()) factor_[t] *= 2;
    }
  }

  /// Repairs schedules for larger budgets until one fits: their excess is dropped tensor by tensor.
  void squeeze() {
    std::fill(factor_.begin(), factor_.end(), 1.0F);
    for (const double more : {1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0}) {
      const double wide = static_cast<double>(p_.budget()) * more;
      if (!(wide < 0x1.0p62)) return;
      solution looser;
      run_fixed_passes(static_cast<std::int64_t>(wide), looser);
      for (std::uint64_t attempt = 0; looser.plan && attempt < 4 && !stopped(); ++attempt) {
        timeline plan(p_);
        plan.load(*looser.plan);
        refine_moves moves(plan, options_.run.seed + attempt);
        moves.max_repairs = 4000;
        moves.must_stop = [this] { return count_work(); };
        if (moves.repair(looser.time + 3 * p_.graph().needed_time))
          accept(p_, best_, schedule_computes(p_, plan.computes()), by_part(evict_solver::name, "squeeze"));
      }
      if (best_.plan || stopped()) return;
    }
  }

  /// Repeats passes that failed, with more weight on the tensors that they had no memory to recompute.
  void repeat_failed_passes() {
    for (const bool evict_pinned : {false, true})
      for (eviction_weights weights : fixed_weights) {
        weights.evict_pinned = evict_pinned;
        weights.keep_sources = pass_.met_sources();
        repeat_pass(weights);
        if (best_.plan || stopped()) return;
      }
  }

  /// Changes the pass that came furthest at random, until one reaches the end; its order only where random passes may.
  void climb() {
    const flat_graph& graph = p_.graph();
    random_source random(options_.run.seed);
    eviction_weights best_weights = fixed_weights[0];
    best_weights.hardest_first = true;
    std::vector<float> best_factor(graph.num_tensors, 1.0F);
    auto best_order = std::make_unique<reordered_passes>(p_, needed_operations());
    std::vector<std::uint32_t> wanted;  // tensors that the best pass could not make
    double progress = 0;
    const std::size_t passes =
        std::min<std::size_t>(8 * std::size_t{graph.num_operations}, most_climbed / (graph.num_operations + 1));
    for (std::size_t i = 0; i < passes && !best_.plan && !stopped(); ++i) {
      eviction_weights weights = best_weights;
      factor_ = best_factor;
      if (random.below(8) == 0) {
        weights = fixed_weights[random.below(std::size(fixed_weights))];
        weights.hardest_first = true;
        weights.distance_exponent *= 0.5 + random.uniform();
        weights.evict_pinned = random.below(2) == 0;
        weights.keep_sources = pass_.met_sources() && random.below(2) == 0;
      } else {
        change_some(factor_, random);
        if (random.below(2) == 0)
          for (const std::uint32_t t : wanted) factor_[t] *= 2;
      }
      std::unique_ptr<reordered_passes> other_order;
      if (options_.random_passes != 0 && random.below(3) == 0)
        other_order = another_order(best_order->problem_in_order.order(), random);
      reordered_passes& order = other_order ? *other_order : *best_order;
      run_pass(p_.budget(), weights, best_, &order);
      if (order.pass.progress() < progress) continue;
      progress = order.pass.progress();
      wanted = order.pass.wanted();
      best_weights = weights;
      best_factor.swap(factor_);
      if (other_order) best_order = std::move(other_order);
    }
  }

  [[nodiscard]] std::vector<std::uint32_t> needed_operations() const {
    std::vector<std::uint32_t> needed;
    for (std::uint32_t o = 0; o < p_.graph().num_operations; ++o)
      if (p_.graph().needed[o]) needed.push_back(o);
    return needed;
  }

  /// An order in which operations have moved a little, or far.
  [[nodiscard]] std::unique_ptr<reordered_passes> another_order(const std::vector<std::uint32_t>& order,
                                                                random_source& random) {
    const double reach = std::exp2(random.uniform() * std::log2(static_cast<double>(order.size()) + 1));
    clock_.work(order.size() * work_of::visit);
    return std::make_unique<reordered_passes>(p_, shuffled_order(p_.graph(), order, reach, random));
  }

  /// Passes with random weights: new ones, or the best ones so far with some of the tensors' factors changed. Some try
  /// another order of the first runs, near the listed one or near the best one so far.
  void run_random_passes() {
    if (options_.random_passes == 0) return;
    random_source random(options_.run.seed);
    eviction_weights best_weights = fixed_weights[0];
    std::vector<float> best_factor = kept_;
    const std::vector<std::uint32_t> listed = needed_operations();
    std::unique_ptr<reordered_passes> best_order;  // none: the listed one
    for (std::uint64_t i = 0; i < options_.random_passes && !stopped(); ++i) {
      eviction_weights weights = best_weights;
      if (random.below(4) == 0) {
        weights = fixed_weights[random.below(std::size(fixed_weights))];
        weights.distance_exponent *= 0.5 + random.uniform();
        weights.keep_sources = pass_.met_sources() && random.below(2) == 0;
        weights.hardest_first = is_tight() && random.below(2) == 0;
        for (std::size_t t = 0; t < factor_.size(); ++t)
          factor_[t] = kept_[t] * std::exp2(static_cast<float>(2 * random.uniform() - 1));
      } else {
        factor_ = best_factor;
        change_some(factor_, random);
      }
      std::unique_ptr<reordered_passes> other_order;
      if (listed.size() <= most_reordered && random.below(4) == 0) {
        const bool near_listed = random.below(4) == 0 || !best_order;
        other_order = another_order(near_listed ? listed : best_order->problem_in_order.order(), random);
      }
      const double before = best_.time;
      run_pass(p_.budget(), weights, best_, other_order ? other_order.get() : best_order.get());
      if (best_.time < before) {
        best_weights = weights;
        best_factor = factor_;
        if (other_order) best_order = std::move(other_order);
      }
    }
  }

  /// True if so much is recomputed that the order of recomputations may matter.
  [[nodiscard]] bool is_tight() const noexcept { return !best_.plan || best_.time > 1.25 * p_.graph().needed_time; }

  /// Holds tensors that the best schedule recomputes although they fit. If much is recomputed, later rounds also free
  /// memory for them, as long as that pays.
  void fill() {
    if (!fill_free_memory()) return;
    timeline plan(p_);
    for (int round = 0; round < 3; ++round) {
      const double before = best_.time;
      const double recomputed = best_.time - p_.graph().needed_time;
      if (recomputed < 0.25 * p_.graph().needed_time || stopped()) return;
      plan.load(*best_.plan);
      refine_moves moves(plan, 0);
      moves.must_stop = [this] { return count_work(); };
      recomputations_.clear();
      for (timeline::node x = plan.next(timeline::head); x != timeline::tail; x = plan.next(x))
        if (plan.removable(x)) recomputations_.emplace_back(-p_.graph().time[plan.operation(x)], x);
      std::sort(recomputations_.begin(), recomputations_.end());
      // Each takes time that grows with the graph.
      const std::size_t most = std::max<std::size_t>(16, most_repaired_places / (plan.node_limit() + 1));
      if (recomputations_.size() > most) recomputations_.resize(most);
      bool changed = false;
      for (const auto& run : recomputations_) {
        if (count_work()) break;
        changed = moves.retain(run.second) || changed;
      }
      if (changed) accept(p_, best_, schedule_computes(p_, plan.computes()), by_part(evict_solver::name, "fill"));
      if (before - best_.time < 0.02 * recomputed) return;
    }
  }

  /// The first round of `fill`: spends free memory alone, on the longest recomputations first. Returns false if the
  /// search must stop.
  bool fill_free_memory() {
    retention line(p_, *best_.plan);
    const auto rank = [&](std::uint32_t x) { return -p_.graph().time[line.operation(x)]; };
    if (auto filled = retaining::fill_free_memory(p_, line, clock_, rank))
      accept(p_, best_, std::move(*filled), by_part(evict_solver::name, "fill"));
    stopped_ = clock_.poll();
    return !stopped();
  }

  /// Counts a move. Returns true if the search must stop.
  bool count_work() {
    clock_.work(work_of::move);
    stopped_ = clock_.poll();
    return stopped();
  }

  static constexpr std::size_t most_repaired_places = 40'000'000;
  static constexpr std::size_t most_climbed = 1'000'000;  // operations of all passes of `climb`
  static constexpr std::size_t most_reordered = 20'000;   // operations; a new order takes as long as a pass

  const problem& p_;
  const evict_options& options_;
  run_clock& clock_;
  solution& best_;
  stop_reason stopped_ = stop_reason::none;
  eviction_pass pass_;
  std::vector<float> kept_;                                       // each tensor's factor before any change
  std::vector<float> factor_;                                     // each tensor's factor in the next pass
  std::vector<std::pair<double, std::uint32_t>> recomputations_;  // the negative time of each, the longest first
};

}  // namespace detail::evict_solve

REMAT_INLINE solution evict_solver::operator()(const problem& p, const evict_options& options) const {
  require_valid_options(name, options);
  detail::require_known_tensors(p, options.keep);
  return detail::solve_by_own_method(p, name, options.run, improvement{}, {.opens_with_listed_order = false},
                                     [&](run_clock& clock, solution& best) -> detail::method_end {
                                       if (prove(p, best, clock.limits())) return {};
                                       detail::evict_solve::eviction_search search(p, options, clock, best);
                                       search.run();
                                       return {search.reason()};
                                     });
}

}  // namespace REMAT_NAMESPACE
