// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/bound/offload.hpp"
#include "remat/core/detail/random.hpp"
#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/method/detail/copy_states.hpp"
#include "remat/method/detail/own_method.hpp"
#include "remat/method/evict.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/eviction_pass.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// Eviction on a problem with a link: passes that bring a tensor back by its operations or by a copy, whichever costs
/// less, at several scales of the prices of copies. The scale is right if the step that the engines really take is
/// shortest: with low prices the link delays it, with high ones too much is recomputed.
class copying_eviction {
 public:
  /// All arguments must outlive this object. `factor`: of each tensor (`eviction_weights`). `by`: of `placement`.
  copying_eviction(const problem& p, const offload_bound_result& floor, std::vector<float> factor, run_clock& clock,
                   const solution& best, copy_placement& placement, std::string_view by)
      : p_(p),
        floor_(floor),
        clock_(clock),
        best_(best),
        placement_(placement),
        by_(by),
        pass_(p),
        turn_(turn_of(p, floor)),
        kept_(std::move(factor)),
        factor_(kept_) {
    for (const eviction_weights& w : fixed_weights) weights_.push_back({w});
  }

  /// Searches for the best scale, then makes `random_passes` near it.
  void run(std::uint64_t random_passes) {
    try_scale(1);
    for (const double other : {0.0, 8.0, 64.0})  // all is copied; or the host is small
      if (!std::isfinite(least_)) try_scale(other);
    if (!std::isfinite(least_)) {  // the order of recomputations decides
      for (weighted& w : weights_) w.weights.hardest_first = true;
      try_scale(1);
    }
    std::stable_sort(weights_.begin(), weights_.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
    for (const double factor : {0.5, 2.0}) {
      double at = best_scale_;
      for (int step = 0; step < most_steps && try_scale(at *= factor); ++step) {
      }
    }
    for (const double factor : {std::sqrt(2.0), std::sqrt(std::sqrt(2.0))}) {
      const double middle = best_scale_;
      try_scale(middle / factor);
      try_scale(middle * factor);
    }
    try_scale(0);
    follow_choice(floor_);
    run_random_passes(random_passes);
    for (int round = 0; round < most_rounds && !is_over() && placement_.remove_recomputations("fill"); ++round) {
    }
  }

 private:
  /// The moment from which on tensors come back: that of the bound or, if it has no delay, the middle of the step.
  [[nodiscard]] static std::uint32_t turn_of(const problem& p, const offload_bound_result& floor) {
    if (floor.delay > 0) return static_cast<std::uint32_t>(index(floor.moment));
    return p.graph().num_operations / 2;
  }

  /// The weights of a pass, and the least time that they have given.
  struct weighted {
    eviction_weights weights;
    double time = std::numeric_limits<double>::infinity();
  };

  [[nodiscard]] bool is_over() const { return clock_.should_stop() || best_.is_within(0); }

  /// Makes passes at one scale of the prices. Returns whether the best schedule of all of them got faster.
  bool try_scale(double scale, const offload_bound_result* choice = nullptr) {
    if (is_over()) return false;
    copy_costs costs = prices_by_floor(p_, floor_, scale);
    if (choice) {
      std::vector<std::uint8_t> chosen(p_.graph().num_tensors, 0);
      for (const tensor_id t : choice->offloaded) chosen[index(t)] = 1;
      for (std::uint32_t t = 0; t < p_.graph().num_tensors; ++t)
        for (auto* price : {&costs.out_price, &costs.in_price}) (*price)[t] *= chosen[t] ? 1 / favour : favour;
    }
    pass_.set_copies(std::move(costs), turn_);
    const double before = least_;
    const bool is_first = !std::isfinite(before);
    const std::size_t count = is_first ? weights_.size() : std::min<std::size_t>(weights_.size(), later_weights);
    for (std::size_t i = 0; i < count && !is_over(); ++i)
      weights_[i].time = std::min(weights_[i].time, run_pass(weights_[i].weights, factor_));
    if (!(least_ < before)) return false;
    best_scale_ = scale;
    return true;
  }

  /// Passes in which the tensors that a bound's choice has on the host are cheaper to copy, and all others dearer.
  void follow_choice(const offload_bound_result& choice) {
    if (choice.offloaded.empty()) return;
    const std::vector<float> before = factor_;
    for (const bool holds : {false, true}) {
      if (holds)
        for (const tensor_id t : choice.saved) factor_[index(t)] *= kept_factor;
      for (const double scale : {0.5, 1.0, 2.0}) try_scale(scale, &choice);
    }
    factor_ = before;
  }

  /// Makes one pass, and places its copies. Returns the time of the schedule; infinite if there is none.
  double run_pass(const eviction_weights& weights, std::span<const float> factor) {
    const double needed = p_.graph().needed_time;
    const double longest = std::isfinite(least_) ? least_ + 0.1 * (least_ - needed) : 60 * needed;
    if (!pass_.run(p_.budget(), weights, factor, longest, clock_)) return std::numeric_limits<double>::infinity();
    const double time = placement_.place(pass_.computes(), prefer(p_.graph(), pass_.copied()), by_);
    least_ = std::min(least_, time);
    clock_.report({.stage = "eviction"});
    return time;
  }

  void run_random_passes(std::uint64_t passes) {
    random_source random(clock_.control().seed);
    eviction_weights best_weights = weights_.front().weights;
    std::vector<float> best_factor = kept_, factor;
    for (std::uint64_t i = 0; i < passes && !is_over(); ++i) {
      eviction_weights weights = best_weights;
      if (random.below(4) == 0) {
        weights = weights_[random.below(weights_.size())].weights;
        weights.distance_exponent *= 0.5 + random.uniform();
        factor = kept_;
        for (float& f : factor) f *= std::exp2(static_cast<float>(2 * random.uniform() - 1));
      } else {
        factor = best_factor;
        change_some(factor, random);
      }
      const double scale = best_scale_ * std::exp2(random.uniform() - 0.5);
      pass_.set_copies(prices_by_floor(p_, floor_, scale), turn_);
      const double before = least_;
      run_pass(weights, factor);
      if (!(least_ < before)) continue;
      best_weights = weights;
      best_factor = factor;
      best_scale_ = scale;
    }
  }

  static constexpr double favour = 3;              // the divisor of the price of a tensor of the bound's choice
  static constexpr int most_rounds = 5;            // rounds in which recomputations are taken out
  static constexpr int most_steps = 6;             // steps of the scale in each direction
  static constexpr std::size_t later_weights = 4;  // how many of the first scale's best weights the other ones try

  const problem& p_;
  const offload_bound_result& floor_;
  run_clock& clock_;
  const solution& best_;
  copy_placement& placement_;
  std::string_view by_;
  copying_eviction_pass pass_;
  std::uint32_t turn_;
  std::vector<float> kept_;    // each tensor's factor before any change
  std::vector<float> factor_;  // … and in passes without random changes
  std::vector<weighted> weights_;
  double least_ = std::numeric_limits<double>::infinity();
  double best_scale_ = 1;
};

/// Eviction for a problem with a link, with the bound known: recomputation alone, then passes that recompute or copy.
inline void run_copying_eviction(const problem& p, const offload_bound_result& floor, const evict_options& options,
                                 run_clock& clock, solution& best, copy_placement& placement, std::string_view by) {
  constexpr double share_alone = 0.25;
  if (best.is_within(0)) return;
  evict_options alone = options;
  alone.random_passes = 0;
  alone.insist = false;  // where no pass fits, copies do more than the slower ways
  const solution s = solve_other_problem(clock, share_alone, evict, p.without_link(), std::move(alone));
  if (s.plan) placement.place(computes_of(*s.plan), {}, by);
  copying_eviction(p, floor, factor_to_keep(p, options.keep), clock, best, placement, by).run(options.random_passes);
}

}  // namespace REMAT_NAMESPACE::detail
