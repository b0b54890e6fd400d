// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/bound/turnaround.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "remat/bound/detail/moment_branch.hpp"
#include "remat/bound/detail/moment_chain.hpp"
#include "remat/bound/detail/moment_cut.hpp"
#include "remat/bound/detail/moment_order.hpp"
#include "remat/bound/detail/price_bound.hpp"
#include "remat/core/detail/directed_rounding.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/problem/flat_graph.hpp"

namespace REMAT_NAMESPACE {

namespace detail::turnaround {

/// The search for the bound under one budget.
class budget_search {
 public:
  budget_search(turnaround_state& state, std::int64_t budget, const turnaround_options& options)
      : graph_(state.problem.graph()),
        cut_(state.cut),
        budget_(budget),
        options_(options),
        clock_(options.run),
        prices_(state, budget, options.moments, clock_) {}
  budget_search(const budget_search&) = delete;  // `prices_` refers to the clock
  budget_search& operator=(const budget_search&) = delete;

  turnaround_result run() {
    result_.lower_bound = graph_.needed_time;
    const bool may_fit = prices_.run();
    result_.least_memory = prices_.least_memory();
    result_.moments_tried = prices_.moments_tried();
    result_.flows = prices_.flows();
    if (!may_fit) {
      result_.infeasible = true;
      result_.lower_bound = std::numeric_limits<double>::infinity();
      return result_;
    }
    if (prices_.order().count() == 0) return result_;
    best_ = prices_.best();
    if (options_.branch_nodes > 0) branch(prices_.order().attempts());
    if (options_.chain_moments > 0 && best_.moment != moment_order::none &&
        graph_.num_operations <= max_chain_operations)
      link_moments(prices_.order());
    finish();
    return result_;
  }

 private:
  static constexpr std::uint32_t max_branch_moments = 4;
  static constexpr std::uint32_t max_chain_operations = 20000;
  static constexpr std::uint32_t max_chain_flow_work = 40'000'000;  // flows × operations
  static constexpr std::uint32_t max_chain_branch_nodes = 24;
  static constexpr std::uint32_t max_coarse_moments = 24;

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
      moment_optimum found = find_moment_optimum(cut_, budget_ - cut_.working_set(), best_.price, prices_.tolerance(),
                                                 options_.branch_nodes, stop_);
      result_.flows += found.flows;
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
    if (options_.run.work_limit < max_chain_flow_work / flow_operations_per_work)
      linking.max_flows =
          static_cast<std::uint32_t>(options_.run.work_limit * flow_operations_per_work / graph_.num_operations);
    linking.tolerance = prices_.tolerance();
    chain_ = find_moment_chain(cut_, budget_, candidates, coarse, linking, stop_);
    result_.flows += chain_.flows;
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
    if (chain_.moments.size() > 1 && chain_.value > result_.recomputation + prices_.tolerance()) {
      result_.recomputation = chain_.value;
      for (const std::uint32_t o : chain_.moments) result_.chain.push_back(static_cast<op_id>(o));
      result_.links = std::make_shared<const moment_chain>(std::move(chain_));
    }
    result_.lower_bound = sum_below(graph_.needed_time, result_.recomputation);
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
      ++result_.flows;
      if (!cut_.complete()) return;
      fits = cut_.choice().bytes <= free_bytes;
    }
    if (!fits) {
      (void)cut_.least_bytes(stop_);
      ++result_.flows;
      if (!cut_.complete()) return;
    }
    result_.choice_time = cut_.choice().time;
    result_.choice_bytes = cut_.choice().bytes;
    result_.saved = cut_.resident();
    result_.again = cut_.again();
  }

  const flat_graph& graph_;
  moment_cut& cut_;
  std::int64_t budget_;
  const turnaround_options& options_;
  run_clock clock_;
  std::function<bool()> stop_ = [this] { return clock_.should_stop(); };
  price_bound prices_;
  price_optimum best_;
  moment_optimum exact_;  // the optimum of branch and bound, at the best moment
  moment_chain chain_;
  turnaround_result result_;
};

}  // namespace detail::turnaround

REMAT_INLINE turnaround_analysis::turnaround_analysis(const problem& p)
    : state_(std::make_shared<detail::turnaround_state>(p)) {}

REMAT_INLINE turnaround_result turnaround_analysis::bound(std::int64_t budget, const turnaround_options& options) {
  return detail::turnaround::budget_search(*state_, budget, options).run();
}

REMAT_INLINE turnaround_result turnaround_bound(const problem& p, const turnaround_options& options) {
  return turnaround_analysis(p).bound(p.budget(), options);
}

}  // namespace REMAT_NAMESPACE
