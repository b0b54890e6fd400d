// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/bound/turnaround.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <utility>

#include "remat/bound/detail/moment_branch.hpp"
#include "remat/bound/detail/moment_chain.hpp"
#include "remat/bound/detail/moment_cut.hpp"
#include "remat/bound/detail/moment_order.hpp"
#include "remat/bound/detail/price_search.hpp"
#include "remat/core/detail/directed_rounding.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/problem/detail/listed_order.hpp"

namespace REMAT_NAMESPACE {

namespace detail::turnaround {

inline constexpr std::uint32_t none = moment_order::none;

/// The result of one flow: for every budget, value − price × budget is a lower bound on the recomputation.
struct line {
  std::uint32_t moment;
  double price, value;
};

/// The state of a `turnaround_analysis`.
struct analysis_state {
  explicit analysis_state(const remat::problem& p) : problem(p) {}

  remat::problem problem;
  moment_cut cut{problem.graph()};
  least_memory_result floor = largest_working_set(problem);  // bytes of working sets and the end of the training step
  std::vector<std::int64_t> listed = listed_memory(problem.graph());
  std::vector<double> producers_time = producers_times(problem.graph());
  std::vector<line> lines;  // the lines from all budgets so far
};

/// The search for the bound under one budget.
class budget_search {
 public:
  budget_search(analysis_state& state, std::int64_t budget, const turnaround_options& options)
      : state_(state),
        graph_(state.problem.graph()),
        cut_(state.cut),
        budget_(budget),
        options_(options),
        clock_(options.run),
        tolerance_(relative_tolerance * graph_.needed_time) {}

  turnaround_result run() {
    result_.least_memory = state_.floor;
    result_.lower_bound = graph_.needed_time;
    if (state_.floor.bytes > budget_) return infeasible();
    moment_order order(graph_, state_.listed, budget_, options_.moments);
    if (order.count() == 0) return result_;
    order.find_tightest(order.count() / 2 + 1);
    std::uint32_t k = order.first();
    double price = 0;
    if (start_from_lines()) {
      k = best_.moment;
      price = best_.price;
    }
    for (std::size_t i = 0; i < order.count(); ++i) {
      if (i > 0) {
        if (clock_.should_stop()) break;
        if (best_.price != estimated_at_) {
          estimated_at_ = best_.price;
          order.set_estimate(estimate(best_.price));
        }
        k = order.next(i);
        if (k == none) break;
        price = best_.price;
      }
      ++result_.moments_tried;
      if (!try_moment(k, price)) return infeasible();
      order.record(k, reached_);
    }
    if (options_.branch_nodes > 0) branch(order.attempts());
    if (options_.chain_moments > 0 && best_.moment != none && graph_.num_operations <= max_chain_operations)
      link_moments(order);
    finish();
    return result_;
  }

 private:
  static constexpr int max_flows = 64;
  static constexpr std::uint32_t max_branch_moments = 4;
  static constexpr std::uint32_t max_chain_operations = 20000;
  static constexpr std::uint32_t max_chain_flow_work = 40'000'000;  // flows × operations
  static constexpr std::uint32_t max_chain_branch_nodes = 24;
  static constexpr std::uint32_t max_coarse_moments = 24;
  /// A moment is given up when its bound cannot exceed the best one by this part of the needed time.
  static constexpr double relative_tolerance = 1e-7;

  struct optimum {
    std::uint32_t moment = none;
    double price = 0;
    double value = 0;          // the bound on the recomputation
    double fitting_price = 0;  // the price at which the cheapest choice is within the budget; negative if unknown
  };

  turnaround_result infeasible() {
    result_.infeasible = true;
    result_.lower_bound = std::numeric_limits<double>::infinity();
    result_.flows = flows_;
    return result_;
  }

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

  /// Takes the best line of earlier budgets as the best bound. Returns false if none is above 0.
  bool start_from_lines() {
    for (const line& x : state_.lines) {
      const double value = less_rent(x.value, x.price, budget_);
      if (value > best_.value) best_ = {x.moment, x.price, value, -1};
    }
    return best_.moment != none;
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
      if (const std::int64_t bytes = least + cut_.working_set(); bytes > result_.least_memory.bytes)
        result_.least_memory = {bytes, memory_reason::first_run, static_cast<op_id>(k), cut_.working_set(),
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
    while (search.run_flow(best_.value + tolerance_, stop_)) {
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

  /// Branch and bound at the tried moments of the highest bounds. Keeps the optimum of the moment that wins.
  void branch(const std::vector<moment_order::attempt>& tried) {
    std::vector<std::pair<double, std::uint32_t>> order;
    for (const moment_order::attempt& a : tried)
      if (a.value > 0) order.push_back({-a.value, a.moment});
    std::sort(order.begin(), order.end());
    if (order.size() > max_branch_moments) order.resize(max_branch_moments);
    for (const auto& [value, o] : order) {
      if (clock_.should_stop()) break;
      cut_.at(o);
      moment_optimum found = find_moment_optimum(cut_, budget_ - cut_.working_set(), best_.price, tolerance_,
                                                 options_.branch_nodes, stop_);
      flows_ += found.flows;
      if (found.lower >= best_.value && std::isfinite(found.lower)) {
        best_ = {o, best_.price, found.lower, -1};
        exact_ = std::move(found);
      }
    }
  }

  /// Searches for a chain of moments that gives more than the best moment.
  void link_moments(moment_order& order) {
    const auto coarse =
        order.sample(std::min(options_.chain_moments, max_coarse_moments), {best_.moment, order.last()});
    const auto candidates = order.sample(options_.chain_moments, coarse);
    moment_chain_options linking;
    linking.first = best_.moment;
    linking.branch_nodes = std::min(options_.branch_nodes, max_chain_branch_nodes);
    linking.max_flows = max_chain_flow_work / graph_.num_operations;
    linking.tolerance = tolerance_;
    chain_ = find_moment_chain(cut_, budget_, candidates, coarse, linking, stop_);
    flows_ += chain_.flows;
  }

  void finish() {
    result_.recomputation = std::max(0.0, best_.value);
    if (result_.recomputation > 0) {
      result_.moment = static_cast<op_id>(best_.moment);
      result_.multiplier = best_.price;
      if (std::isfinite(exact_.upper)) {
        result_.working_set = working_set_bytes(graph_, best_.moment);
        result_.choice_time = exact_.choice.time;
        result_.choice_bytes = exact_.choice.bytes;
        result_.saved = std::move(exact_.saved);
        result_.again = std::move(exact_.again);
      } else if (options_.want_saved && !clock_.should_stop()) {
        recall_choice();
      }
    }
    if (chain_.moments.size() > 1 && chain_.value > result_.recomputation + tolerance_) {
      result_.recomputation = chain_.value;
      for (const std::uint32_t o : chain_.moments) result_.chain.push_back(static_cast<op_id>(o));
      result_.links = std::make_shared<const moment_chain>(std::move(chain_));
    }
    result_.lower_bound = sum_below(graph_.needed_time, result_.recomputation);
    result_.flows = flows_;
  }

  /// Finds the choice behind the bound once more. The result has none if the run is stopped meanwhile.
  void recall_choice() {
    cut_.at(best_.moment);
    result_.working_set = cut_.working_set();
    const std::int64_t free_bytes = budget_ - result_.working_set;
    // Raises the price until the cheapest choice fits: rounding or the clock may have hidden the best price.
    double price = best_.fitting_price >= 0 ? best_.fitting_price : best_.price;
    bool fits = false;
    for (int i = 0; i < 8 && !fits; ++i, price *= 4) {
      (void)cut_.price(std::min(price, cut_.highest_price()), stop_);
      ++flows_;
      if (!cut_.complete()) return;
      fits = cut_.choice().bytes <= free_bytes;
    }
    if (!fits) {
      (void)cut_.least_bytes(stop_);
      ++flows_;
      if (!cut_.complete()) return;
    }
    result_.choice_time = cut_.choice().time;
    result_.choice_bytes = cut_.choice().bytes;
    result_.saved = cut_.resident();
    result_.again = cut_.again();
  }

  analysis_state& state_;
  const flat_graph& graph_;
  moment_cut& cut_;
  std::int64_t budget_;
  const turnaround_options& options_;
  run_clock clock_;
  std::function<bool()> stop_ = [this] { return clock_.should_stop(); };
  double tolerance_;
  double reached_ = 0;        // the best bound at the last moment
  double estimated_at_ = -1;  // the price of the last estimate
  optimum best_;
  moment_optimum exact_;  // the optimum of branch and bound, at the best moment
  moment_chain chain_;
  std::uint32_t flows_ = 0;
  turnaround_result result_;
};

}  // namespace detail::turnaround

REMAT_INLINE turnaround_analysis::turnaround_analysis(const problem& p)
    : state_(std::make_shared<detail::turnaround::analysis_state>(p)) {}

REMAT_INLINE turnaround_result turnaround_analysis::bound(std::int64_t budget, const turnaround_options& options) {
  return detail::turnaround::budget_search(*state_, budget, options).run();
}

REMAT_INLINE turnaround_result turnaround_bound(const problem& p, const turnaround_options& options) {
  return turnaround_analysis(p).bound(p.budget(), options);
}

}  // namespace REMAT_NAMESPACE
