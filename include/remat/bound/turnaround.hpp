// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/bound/moment_branch.hpp"
#include "remat/bound/moment_cut.hpp"
#include "remat/core/control.hpp"
#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"

namespace remat {

struct turnaround_options {
  /// Most moments (first runs) that are looked at for one budget; 0: all of them. More can only raise the bound.
  std::uint32_t moments = 24;
  /// Nodes of branch and bound at each of the four best moments, to close the gap between the price of a byte and whole
  /// tensors (`moment_branch`). 0: none.
  std::uint32_t branch_nodes = 0;
  bool want_saved = true;  ///< fill in `choice`, `saved` and `again`: one more flow
  run_control run{};
};

/// A proven lower bound on the time of every schedule within a budget, or the proof that there is none.
struct turnaround_result {
  double lower_bound = 0;              ///< time; infinite where infeasible
  double recomputation = 0;            ///< the part of it that is beyond the needed operations
  bool infeasible = false;             ///< proven: `least_memory` says which operation needs which bytes
  least_memory_result least_memory{};  ///< the largest memory bound that was met on the way
  op_id moment{};                      ///< whose first run gives the bound; means nothing where `recomputation` is 0
  double multiplier = 0;         ///< price of a byte at that moment: about what one byte more of budget saves, in time
  std::int64_t working_set = 0;  ///< bytes of the moment's operation itself
  /// Empty where a run was stopped before it was found, or `want_saved` is false.
  /// A best choice within the budget at that moment: what is resident (beside the working set), what runs again later,
  /// and what these come to. A starting point for solvers; the least time of any choice lies between `recomputation`
  /// and `choice.time`.
  moment_choice choice{};
  std::vector<tensor_id> saved{};
  std::vector<op_id> again{};
  std::uint32_t moments_tried = 0;
  std::uint32_t flows = 0;
};

/// The turnaround bound for one step and any number of budgets.
///
/// For the first run of an operation k, `moment_cut` gives the least of (time of what must run again + price × resident
/// bytes) over all choices of what is resident at that moment. Less price × (budget − working set of k), that is a
/// lower bound on the recomputation of every schedule within the budget, whatever the price ≥ 0 (weak Lagrangian
/// duality). As a function of the price it is concave and piecewise linear; each flow gives a value and the line
/// through it, and the next price is where the lines at either side of the optimum meet. The bound is the largest over
/// prices and moments.
///
/// A moment where the listed order fits the budget has no bound above 0 and is never looked at. Of the others, the one
/// where the listed order holds most comes first; then, by turns, the one of the highest estimate (the listed order's
/// tensors at each operation, each at the lower of its bytes × price and its producers' times, corrected by what the
/// nearest tried moments came to) and the one where the listed order has to drop the largest part of what is beside the
/// working set. Most moments after the first few are given up after one flow: the two lines that are known show that
/// they cannot win.
///
/// What one budget's solve has learned (a value at a moment and a price serves every budget) starts the next.
/// Proofs: docs/bounds.md. Never more than the true bound in spite of rounding: flows are in integers, times rounded
/// down to 2^−50 of their sum; the bound loses at most operations × 2^−50 of the recomputable time by it.
/// A flow of a step of n operations with r reads and writes takes O(r) for each of its waves, a few in practice.
/// Polls before each wave of a flow; stopped early, it returns the bound so far.
class turnaround_analysis {
 public:
  /// Any budget of `p` is not used here. Keeps the problem's arrays alive.
  explicit turnaround_analysis(const problem& p) : problem_(p), cut_(p.graph()) {
    const flat_graph& s = p.graph();
    floor_ = largest_working_set(p);
    listed_ = listed_order_sums<std::int64_t>(s, [&](std::uint32_t t) { return s.bytes[t]; });
    for (std::uint32_t o = 0; o < s.num_operations; ++o)
      if (s.needed[o]) listed_[o] += s.workspace[o];
    producers_time_.assign(s.num_tensors, 0);
    for (std::uint32_t t = 0; t < s.num_tensors; ++t)
      for (const std::uint32_t o : s.producers[t])
        producers_time_[t] += s.once[o] ? std::numeric_limits<double>::infinity() : s.time[o];
    for (const std::uint8_t o : s.once) unrepeatable_ = unrepeatable_ || o != 0;
  }

  /// The bound for `budget` bytes.
  [[nodiscard]] turnaround_result bound(std::int64_t budget, const turnaround_options& options = {}) {
    const flat_graph& s = problem_.graph();
    const run_clock clock(options.run);
    turnaround_result r;
    r.least_memory = floor_;
    r.lower_bound = s.needed_time;
    budget_ = budget;
    best_ = {};
    flows_ = 0;
    tolerance_ = relative_tolerance * s.needed_time;
    if (floor_.bytes > budget) return infeasible(r);

    std::vector<std::uint32_t> moments;
    for (std::uint32_t o = 0; o < s.num_operations; ++o)
      if (s.needed[o] && listed_[o] > budget) moments.push_back(o);
    if (moments.empty()) return r;
    const std::size_t most =
        options.moments == 0 ? moments.size() : std::min<std::size_t>(options.moments, moments.size());

    // The first: where earlier budgets say, else where the listed order holds most.
    std::uint32_t k = *std::max_element(moments.begin(), moments.end(),
                                        [&](std::uint32_t a, std::uint32_t b) { return listed_[a] < listed_[b]; });
    double price = 0;
    for (const seen& x : seen_) {
      const double value = x.value - times_up(x.price, budget);
      if (value > best_.value) {
        best_ = {x.moment, x.price, value, -1};
        k = x.moment;
        price = x.price;
      }
    }
    std::vector<std::uint8_t> tried(s.num_operations, 0);
    std::vector<std::pair<std::uint32_t, double>> errors;  // moments tried, ascending; value − estimate
    std::vector<std::uint32_t> tight = tightest(moments, most / 2 + 1);
    std::size_t next_tight = 0;
    std::vector<double> estimate;
    double estimated_at = -1;
    for (std::size_t i = 0; i < most; ++i) {
      if (i > 0) {
        if (clock.should_stop()) break;
        if (best_.price != estimated_at) {
          estimated_at = best_.price;
          estimate = estimates(estimated_at);
          for (auto& e : errors) e.second = values_[e.first] - estimate[e.first];
        }
        if (i % 2 == 0)
          while (next_tight < tight.size() && tried[tight[next_tight]]) ++next_tight;
        k = i % 2 == 0 && next_tight < tight.size() ? tight[next_tight] : next_moment(moments, tried, errors, estimate);
        if (k == none) break;
        price = best_.price;
      }
      tried[k] = 1;
      ++r.moments_tried;
      if (!solve(k, price, clock, r)) return infeasible(r);
      if (i == 0) values_.assign(s.num_operations, 0);
      values_[k] = reached_;
      if (estimate.empty()) estimate.assign(s.num_operations, 0);
      const auto at =
          std::lower_bound(errors.begin(), errors.end(), k, [](const auto& e, std::uint32_t o) { return e.first < o; });
      errors.insert(at, {k, reached_ - estimate[k]});
    }
    moment_optimum exact;
    if (options.branch_nodes > 0) branch(errors, options, clock, exact);
    r.recomputation = std::max(0.0, best_.value);
    r.lower_bound = s.needed_time + r.recomputation;
    r.flows = flows_;
    if (r.recomputation > 0) {
      r.moment = static_cast<op_id>(best_.moment);
      r.multiplier = best_.price;
      if (std::isfinite(exact.upper)) {
        r.working_set = working_set_bytes(s, best_.moment);
        r.choice = exact.choice;
        r.saved = std::move(exact.saved);
        r.again = std::move(exact.again);
      } else if (options.want_saved && !clock.should_stop()) {
        recall(r, clock);
      }
    }
    return r;
  }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();
  struct seen {  // a flow: for every budget, value − price × budget is a bound
    std::uint32_t moment;
    double price, value;
  };
  struct found {
    std::uint32_t moment = none;
    double price = 0;
    double value = 0;
    double enough = 0;  // a price whose choice is within the budget
  };

  /// An upper bound on the product.
  [[nodiscard]] static double times_up(double price, std::int64_t bytes) {
    return price * static_cast<double>(bytes) * (1 + 0x1p-51);
  }

  turnaround_result& infeasible(turnaround_result& r) const {
    r.infeasible = true;
    r.lower_bound = std::numeric_limits<double>::infinity();
    r.flows = flows_;
    return r;
  }

  /// What each moment may come to at a price: a guess, most often too low by much the same for near moments.
  [[nodiscard]] std::vector<double> estimates(double price) const {
    const flat_graph& s = problem_.graph();
    const auto worth = [&](std::uint32_t t) {
      return std::min(price * static_cast<double>(s.bytes[t]), producers_time_[t]);
    };
    std::vector<double> sums = listed_order_sums<double>(s, worth);
    for (std::uint32_t o = 0; o < s.num_operations; ++o) {
      if (!s.needed[o]) continue;
      sums[o] += price * (static_cast<double>(s.workspace[o]) - static_cast<double>(budget_));
      for (const auto* rows : {&s.inputs, &s.outputs})
        for (const std::uint32_t t : (*rows)[o]) sums[o] += price * static_cast<double>(s.bytes[t]) - worth(t);
    }
    return sums;
  }

  /// The moment that promises most: its estimate, corrected as the nearest tried moments on both sides were wrong.
  [[nodiscard]] std::uint32_t next_moment(const std::vector<std::uint32_t>& moments,
                                          const std::vector<std::uint8_t>& tried,
                                          const std::vector<std::pair<std::uint32_t, double>>& errors,
                                          const std::vector<double>& estimate) const {
    std::uint32_t next = none;
    double most = -std::numeric_limits<double>::infinity();
    std::size_t j = 0;
    for (const std::uint32_t o : moments) {
      if (tried[o]) continue;
      while (j < errors.size() && errors[j].first < o) ++j;
      double error = 0;
      if (j == 0) {
        error = errors[j].second;
      } else if (j == errors.size()) {
        error = errors[j - 1].second;
      } else {
        const double left = o - errors[j - 1].first, right = errors[j].first - o;
        error = (errors[j - 1].second * right + errors[j].second * left) / (left + right);
      }
      const double value = estimate[o] + error;
      if (value > most) {
        most = value;
        next = o;
      }
    }
    return next;
  }

  /// The `count` moments where the listed order has to drop the largest part of what is beside the working set.
  [[nodiscard]] std::vector<std::uint32_t> tightest(const std::vector<std::uint32_t>& moments,
                                                    std::size_t count) const {
    std::vector<std::pair<double, std::uint32_t>> part;
    for (const std::uint32_t o : moments)
      part.push_back({-static_cast<double>(listed_[o] - budget_) /
                          static_cast<double>(listed_[o] - working_set_bytes(problem_.graph(), o)),
                      o});
    count = std::min(count, part.size());
    std::partial_sort(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(count), part.end());
    std::vector<std::uint32_t> order;
    for (std::size_t i = 0; i < count; ++i) order.push_back(part[i].second);
    return order;
  }

  /// Looks for the best price at moment `k`, first at `price` where that is above 0, as long as it may beat what there
  /// is. False: proven infeasible.
  bool solve(std::uint32_t k, double price, const run_clock& clock, turnaround_result& r) {
    const auto stop = [&] { return clock.should_stop(); };
    cut_.at(k);
    const std::int64_t room = budget_ - cut_.working_set();  // ≥ 0: all working sets fit
    moment_choice left{0, listed_[k] - cut_.working_set()};  // the listed order
    moment_choice right{cut_.total_time(), 0};               // everything again
    double enough = -1;
    reached_ = 0;
    if (unrepeatable_ && cut_.has_unrepeatable()) {
      const std::int64_t least = cut_.least_bytes(stop);
      ++flows_;
      if (least + cut_.working_set() > r.least_memory.bytes) {
        r.least_memory.bytes = least + cut_.working_set();
        r.least_memory.reason = memory_reason::first_run;
        r.least_memory.operation = static_cast<op_id>(k);
        r.least_memory.working_set = cut_.working_set();
        r.least_memory.also_resident = cut_.complete() ? cut_.resident() : std::vector<tensor_id>{};
      }
      if (least > room) return false;
      if (!cut_.complete()) return true;
      right = cut_.choice();
    }
    for (int flow = 0; flow < most_flows && left.bytes > right.bytes; ++flow) {
      const double meet = (right.time - left.time) / static_cast<double>(left.bytes - right.bytes);
      const double upper = left.time + meet * static_cast<double>(left.bytes - room);
      if (upper <= std::max(best_.value, reached_) + tolerance_) {
        if (flow == 0) reached_ = upper;
        break;
      }
      double at = flow == 0 && price > 0 ? price : meet;
      at = std::min(at, cut_.highest_price());
      const double cost = cut_.price(at, stop);
      ++flows_;
      const double value = cost - times_up(at, room);
      seen_.push_back({k, at, cost + std::nextafter(at * static_cast<double>(cut_.working_set()), 0.0)});
      const bool better = value > best_.value;
      if (better) best_ = {k, at, value, enough};
      reached_ = flow == 0 ? value : std::max(reached_, value);
      if (!cut_.complete()) break;
      const moment_choice c = cut_.choice();
      if (c.bytes > room) {
        if (c.bytes >= left.bytes && flow > 0) break;  // nothing between the two lines but rounding
        left = c;
        cut_.keep();
        if (at >= cut_.highest_price()) break;
      } else {
        enough = at;
        if (best_.moment == k) best_.enough = at;
        if (c.bytes == room || (c.time >= right.time && flow > 0)) break;
        right = c;
      }
    }
    return true;
  }

  /// Branch and bound at the tried moments of the highest values. `exact` is what it finds at the moment that wins.
  void branch(const std::vector<std::pair<std::uint32_t, double>>& tried, const turnaround_options& options,
              const run_clock& clock, moment_optimum& exact) {
    std::vector<std::pair<double, std::uint32_t>> order;
    for (const auto& [o, error] : tried)
      if (values_[o] > 0) order.push_back({-values_[o], o});
    std::sort(order.begin(), order.end());
    moment_branch search(cut_);
    std::uint32_t moments = 0;
    for (const auto& [value, o] : order) {
      if (moments++ >= most_branch_moments || clock.should_stop()) break;
      cut_.at(o);
      moment_optimum found = search.solve(budget_ - cut_.working_set(), best_.price, tolerance_, options.branch_nodes,
                                          [&] { return clock.should_stop(); });
      flows_ += found.flows;
      if (found.lower >= best_.value && std::isfinite(found.lower)) {
        best_ = {o, best_.price, found.lower, -1};
        exact = std::move(found);
      }
    }
  }

  /// Writes the choice behind the bound into `r`. Leaves it empty where the run is stopped meanwhile.
  void recall(turnaround_result& r, const run_clock& clock) {
    const auto stop = [&] { return clock.should_stop(); };
    cut_.at(best_.moment);
    r.working_set = cut_.working_set();
    const std::int64_t room = budget_ - r.working_set;
    // A price at which the cheapest choice fits; the highest of all where rounding or the clock has hidden it.
    double price = best_.enough >= 0 ? best_.enough : best_.price;
    for (int i = 0; i < 8; ++i) {
      (void)cut_.price(std::min(price, cut_.highest_price()), stop);
      ++flows_;
      if (!cut_.complete()) {
        r.choice = {};
        return;
      }
      r.choice = cut_.choice();
      if (r.choice.bytes <= room) break;
      price *= 4;
    }
    if (r.choice.bytes > room) {
      (void)cut_.least_bytes(stop);
      ++flows_;
      if (!cut_.complete()) {
        r.choice = {};
        return;
      }
      r.choice = cut_.choice();
    }
    r.saved = cut_.resident();
    r.again = cut_.again();
  }

  static constexpr int most_flows = 64;
  static constexpr std::uint32_t most_branch_moments = 4;
  /// How far below the best price the bound of a moment may stay, as a part of the needed time.
  static constexpr double relative_tolerance = 1e-7;

  problem problem_;
  moment_cut cut_;
  least_memory_result floor_;
  std::vector<std::int64_t> listed_;    // memory at each needed operation in the listed order
  std::vector<double> producers_time_;  // of a tensor
  bool unrepeatable_ = false;
  std::vector<seen> seen_;
  std::vector<double> values_;
  std::int64_t budget_ = 0;
  double tolerance_ = 0;
  double reached_ = 0;  // best value of the last moment
  found best_{};
  std::uint32_t flows_ = 0;
};

/// The turnaround bound for the problem's budget: see `turnaround_analysis`.
[[nodiscard]] inline turnaround_result turnaround_bound(const problem& p, const turnaround_options& options = {}) {
  return turnaround_analysis(p).bound(p.budget(), options);
}

}  // namespace remat
