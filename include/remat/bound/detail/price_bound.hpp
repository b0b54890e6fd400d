// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/bound/detail/moment_order.hpp"
#include "remat/bound/detail/price_search.hpp"
#include "remat/bound/least_memory.hpp"
#include "remat/core/detail/directed_rounding.hpp"
#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/detail/listed_order.hpp"
#include "remat/problem/problem.hpp"

/// The turnaround bound at one moment, by prices of bytes alone: all that the end of a solve needs of it.
namespace REMAT_NAMESPACE::detail {

/// The result of one flow: for every budget, value − price × budget is a lower bound on the recomputation.
struct price_line {
  std::uint32_t moment;
  double price, value;
};

/// The state that the bounds of one graph under several budgets share.
struct turnaround_state {
  explicit turnaround_state(const remat::problem& p) : problem(p) {}

  remat::problem problem;
  moment_cut cut{problem.graph()};
  least_memory_result floor = largest_working_set(problem);  // bytes of working sets and the end of the training step
  std::vector<std::int64_t> listed = listed_memory(problem.graph());
  std::vector<double> producers_time = producers_times(problem.graph());
  std::vector<price_line> lines;  // the lines of all budgets so far
};

/// The number of moments that are tried by default.
inline constexpr std::uint32_t usual_moments = 24;

/// The best moment under one budget.
struct price_optimum {
  std::uint32_t moment = moment_order::none;
  double price = 0;
  double value = 0;          ///< the bound on the recomputation
  double fitting_price = 0;  ///< the price at which the cheapest choice is within the budget; negative if unknown
};

/// The search for the best moment and price under one budget.
class price_bound {
 public:
  /// A moment is given up when its bound cannot exceed the best one by this part of the needed time.
  static constexpr double relative_tolerance = 1e-7;

  /// `state` and `clock` must outlive the object. `moments`: at most so many are tried; 0: all.
  price_bound(turnaround_state& state, std::int64_t budget, std::uint32_t moments, run_clock& clock)
      : state_(state),
        graph_(state.problem.graph()),
        cut_(state.cut),
        budget_(budget),
        clock_(clock),
        least_memory_(state.floor),
        order_(graph_, state.listed, budget, moments) {}

  /// Returns false if it proves that no schedule is within the budget.
  bool run() {
    if (state_.floor.bytes > budget_) return false;
    if (order_.count() == 0) return true;
    order_.find_tightest(order_.count() / 2 + 1);
    std::uint32_t k = order_.first();
    double price = 0;
    if (start_from_lines()) {
      k = best_.moment;
      price = best_.price;
    }
    for (std::size_t i = 0; i < order_.count(); ++i) {
      if (i > 0) {
        if (clock_.should_stop()) break;
        if (best_.price != estimated_at_) {
          estimated_at_ = best_.price;
          order_.set_estimate(estimate(best_.price));
        }
        k = order_.next(i);
        if (k == moment_order::none) break;
        price = best_.price;
      }
      ++moments_tried_;
      if (!try_moment(k, price)) return false;
      order_.record(k, reached_);
    }
    return true;
  }

  /// The least gain that is looked for, in times.
  [[nodiscard]] double tolerance() const noexcept { return relative_tolerance * graph_.needed_time; }
  /// The best moment; `moment_order::none` without a bound above 0.
  [[nodiscard]] const price_optimum& best() const noexcept { return best_; }
  /// The bound on the time of every schedule within the budget.
  [[nodiscard]] double lower_bound() const noexcept {
    return sum_below(graph_.needed_time, std::max(0.0, best_.value));
  }
  /// The largest memory bound that the search has met.
  [[nodiscard]] const least_memory_result& least_memory() const noexcept { return least_memory_; }
  /// The moments, in the order in which they were tried.
  [[nodiscard]] moment_order& order() noexcept { return order_; }
  [[nodiscard]] std::uint32_t moments_tried() const noexcept { return moments_tried_; }
  [[nodiscard]] std::uint32_t flows() const noexcept { return flows_; }

 private:
  static constexpr int max_flows = 64;

  /// Estimates the bound at each operation. An estimate is mostly too low, by about the same at neighbouring moments.
  [[nodiscard]] std::vector<double> estimate(double price) const {
    const auto worth = [&](std::uint32_t t) {
      return std::min(price * static_cast<double>(graph_.bytes[t]), state_.producers_time[t]);
    };
    std::vector<double> values = listed_order_sums<double>(graph_, worth);
    for (std::uint32_t o = 0; o < graph_.num_operations; ++o) {
      if (!graph_.needed[o]) continue;
      values[o] += price * (static_cast<double>(graph_.workspace[o]) - static_cast<double>(budget_));
      for (const auto* rows : {&graph_.inputs, &graph_.outputs})
        for (const std::uint32_t t : (*rows)[o]) values[o] += price * static_cast<double>(graph_.bytes[t]) - worth(t);
    }
    return values;
  }

  /// Takes the best line of earlier budgets as the best bound. Returns false if moment_order::none is above 0.
  bool start_from_lines() {
    for (const price_line& x : state_.lines) {
      const double value = less_rent(x.value, x.price, budget_);
      if (value > best_.value) best_ = {x.moment, x.price, value, -1};
    }
    return best_.moment != moment_order::none;
  }

  /// Searches for the best price at moment `k` as long as it may improve the best bound; the first price is `price`
  /// if that is above 0. Returns false if the moment proves that no schedule is within the budget.
  bool try_moment(std::uint32_t k, double price) {
    cut_.at(k);
    reached_ = 0;
    moment_choice fitting{cut_.total_time(), 0};
    if (cut_.has_unrepeatable()) {
      const std::int64_t least = cut_.least_bytes(stop_);
      ++flows_;
      if (const std::int64_t bytes = least + cut_.working_set(); bytes > least_memory_.bytes)
        least_memory_ = {bytes, memory_reason::first_run, static_cast<op_id>(k), cut_.working_set(),
                         cut_.complete() ? cut_.resident() : std::vector<tensor_id>{}};
      if (least > budget_ - cut_.working_set()) return false;
      if (!cut_.complete()) return true;
      fitting = cut_.choice();
    }
    search_price(k, price, {0, state_.listed[k] - cut_.working_set()}, fitting);
    return true;
  }

  /// Maximises the bound over the price. `left` is a choice that exceeds the budget, `right` one that fits into it.
  void search_price(std::uint32_t k, double price, moment_choice left, moment_choice right) {
    const std::int64_t free_bytes = budget_ - cut_.working_set();  // ≥ 0, since all working sets fit
    double fitting_price = -1;
    bool is_first = true;
    price_search search(cut_, free_bytes, left, right, price, max_flows);
    reached_ = search.most();
    while (search.run_flow(best_.value + tolerance(), stop_)) {
      const double at = search.price(), value = search.value();
      ++flows_;
      state_.lines.push_back({k, at, sum_below(search.cost(), product_below(at, number_below(cut_.working_set())))});
      if (value > best_.value) best_ = {k, at, value, fitting_price};
      reached_ = is_first ? value : std::max(reached_, value);
      is_first = false;
      if (!search.fits()) continue;
      fitting_price = at;
      if (best_.moment == k) best_.fitting_price = at;
    }
  }

  turnaround_state& state_;
  const flat_graph& graph_;
  moment_cut& cut_;
  std::int64_t budget_;
  run_clock& clock_;
  std::function<bool()> stop_ = [this] { return clock_.should_stop(); };
  least_memory_result least_memory_;
  moment_order order_;
  price_optimum best_;
  double reached_ = 0;        // the best bound at the last moment
  double estimated_at_ = -1;  // the price of the last estimate
  std::uint32_t moments_tried_ = 0, flows_ = 0;
};

}  // namespace REMAT_NAMESPACE::detail
