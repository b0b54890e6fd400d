// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "remat/bound/detail/moment_branch.hpp"
#include "remat/bound/detail/moment_cut.hpp"
#include "remat/bound/detail/moment_relations.hpp"
#include "remat/bound/detail/price_search.hpp"
#include "remat/core/id.hpp"

namespace REMAT_NAMESPACE::detail {

/// A lower bound on the recomputation of every schedule within a budget, from several moments.
struct moment_chain {
  double value = 0;  ///< the bound; 0 if none was found
  /// The operations whose first runs are the moments. Each depends on the one before.
  std::vector<std::uint32_t> moments{};
  std::vector<std::vector<tensor_rate>> passed{};  ///< the rates between a moment and the next
  std::vector<double> prices{};                    ///< the price of a byte at each moment
  std::vector<double> values{};  ///< bounds of the segments with these rates; with all rates taken off, they add up
  std::uint32_t flows = 0;       ///< maximum flows that were run
};

struct moment_chain_options {
  std::uint32_t first = 0;           ///< the best single moment; one of the candidates
  std::uint32_t branch_nodes = 0;    ///< nodes of branch and bound for each segment; 0: prices alone
  std::uint32_t max_flows = 100000;  ///< the search ends after about this many flows
  double tolerance = 0;              ///< time; gains below it are not looked for
};

namespace moment_chain_search {

/// One search of `find_moment_chain`.
class search {
 public:
  search(moment_cut& cut, std::int64_t budget, const moment_chain_options& options, const std::function<bool()>& stop)
      : cut_(cut), graph_(cut.graph()), budget_(budget), options_(options), stop_(stop) {}

  moment_chain run(const std::vector<std::uint32_t>& candidates, const std::vector<std::uint32_t>& coarse) {
    candidates_ = candidates;
    find_order();
    chain now = start(coarse);
    if (is_promising(now)) {
      climb_both(now, 30, 8);
      keep(now);
      improve(now);
      climb_both(now, 100, 30);
      finish_branching(now, 16);
      keep(now);
    }
    value_segments();
    best_.flows = flows_;
    return std::move(best_);
  }

 private:
  using rates = std::vector<tensor_rate>;
  static constexpr double infinity = std::numeric_limits<double>::infinity();
  static constexpr int max_price_flows = 32;
  static constexpr int max_rounds = 12;
  static constexpr std::size_t max_tries = 3;  // chains of a round that are climbed with whole tensors
  static constexpr int screening_steps = 25;
  static constexpr std::uint32_t small_graph = 150, large_graph = 300;
  static constexpr double momentum = 0.5;        // the momentum of the subgradient steps
  static constexpr double large_tensors = 1.05;  // how much higher the bound by whole tensors is
  static constexpr double promising_part = 0.6, promising_part_of_large = 0.75;
  static constexpr double least_gain = 5e-4;  // the part of the bound that another moment must gain

  /// The tensors that a choice of one segment holds at the moment, and the operations that it runs; ascending.
  struct choice_lists {
    std::vector<std::uint32_t> resident, runs;
  };
  /// The bound of one segment, and the choices on both sides of its best price.
  struct piece {
    double value = 0;
    double price = 0;
    choice_lists low, high;
    double share = 1;  // the share of `low`: mixed so, the two choices fill the budget
  };
  /// Moments in order. `passed[i]` are the rates between segments i and i + 1, `prices` those of a byte.
  struct chain {
    std::vector<std::uint32_t> moments;
    std::vector<rates> passed;
    std::vector<double> prices;
    double value = -infinity;  // the bound by prices
    double whole = -infinity;  // the bound by branch and bound

    [[nodiscard]] double best() const { return std::max(value, whole); }
  };

  /// Finds which candidates depend on which.
  void find_order() {
    const std::size_t m = candidates_.size();
    precedes_.assign(m * m, 0);
    std::vector<std::uint8_t> before(graph_.num_operations);
    for (std::size_t j = 0; j < m; ++j) {
      std::fill(before.begin(), before.end(), std::uint8_t{0});
      before[candidates_[j]] = 1;
      for (std::uint32_t o = candidates_[j] + 1; o-- > candidates_[0];)
        if (before[o])
          for (const std::uint32_t t : graph_.inputs[o])
            for (const std::uint32_t p : graph_.producers[t]) before[p] = 1;
      for (std::size_t i = 0; i < j; ++i) precedes_[i * m + j] = before[candidates_[i]];
    }
  }

  [[nodiscard]] bool precedes(std::uint32_t a, std::uint32_t b) const {
    const auto place = [&](std::uint32_t o) {
      return static_cast<std::size_t>(std::lower_bound(candidates_.begin(), candidates_.end(), o) -
                                      candidates_.begin());
    };
    return a < b && precedes_[place(a) * candidates_.size() + place(b)];
  }

  [[nodiscard]] bool stopped() {
    stopped_ = stopped_ || flows_ >= options_.max_flows || (stop_ && stop_());
    return stopped_;
  }

  [[nodiscard]] choice_lists present_choice() const {
    choice_lists x;
    for (const tensor_id t : cut_.resident()) x.resident.push_back(static_cast<std::uint32_t>(index(t)));
    cut_.for_each_run([&](std::uint32_t o) { x.runs.push_back(o); });
    std::sort(x.runs.begin(), x.runs.end());
    return x;
  }

  /// Bounds the cost of a segment from below by the best price. `start`: the first price to try, if above 0.
  piece bound_by_price(const segment& s, double start) {
    piece x;
    cut_.at(s);
    const std::int64_t free_bytes = budget_ - cut_.working_set();
    if (!cut_.has_unrepeatable()) x.high.runs = cut_.possible_runs();
    price_search prices(cut_, free_bytes, start, max_price_flows);
    while (prices.run_flow(x.value + options_.tolerance, stop_)) {
      ++flows_;
      if (prices.value() > x.value) {
        x.value = prices.value();
        x.price = prices.price();
      }
      if (prices.new_left()) x.low = present_choice();
      if (prices.new_right()) x.high = present_choice();
    }
    const moment_choice &left = prices.left(), &right = prices.right();
    if (left.bytes > std::max(free_bytes, right.bytes))
      x.share = std::clamp(
          static_cast<double>(free_bytes - right.bytes) / static_cast<double>(left.bytes - right.bytes), 0.0, 1.0);
    return x;
  }

  /// Bounds it with whole tensors.
  piece bound_by_branching(const segment& s, double start) {
    cut_.at(s);
    const moment_optimum found =
        find_moment_optimum(cut_, budget_ - cut_.working_set(), start, options_.tolerance, branch_nodes_, stop_);
    flows_ += found.flows;
    piece x;
    x.price = start;
    if (std::isfinite(found.lower)) x.value = std::max(0.0, found.lower);
    for (const tensor_id t : found.saved) x.low.resident.push_back(static_cast<std::uint32_t>(index(t)));
    for (const op_id o : found.runs) x.low.runs.push_back(static_cast<std::uint32_t>(index(o)));
    std::sort(x.low.runs.begin(), x.low.runs.end());
    return x;
  }

  piece bound(const chain& c, std::size_t i, bool whole) {
    segment s{.moment = c.moments[i]};
    if (i + 1 < c.moments.size()) {
      s.end = c.moments[i + 1];
      s.passed_on = &c.passed[i];
    }
    if (i > 0) s.kept = &c.passed[i - 1];
    return whole ? bound_by_branching(s, c.prices[i]) : bound_by_price(s, c.prices[i]);
  }

  /// Returns the bound of a chain, and leaves those of its segments in `pieces_`; −infinity if the search is stopped.
  double evaluate(const chain& c, bool whole) {
    pieces_.clear();
    double sum = 0, size = 0;
    std::size_t terms = c.moments.size() + 8;
    for (std::size_t i = 0; i < c.moments.size(); ++i) {
      if (stopped()) return -infinity;
      pieces_.push_back(bound(c, i, whole));
      sum += pieces_.back().value;
      size += std::abs(pieces_.back().value);
    }
    for (const rates& r : c.passed)
      for (const tensor_rate& x : r) {
        sum -= x.rate;
        size += x.rate;
        ++terms;
      }
    return sum - size * static_cast<double>(terms) * 0x1p-52;  // more than all additions can have rounded up
  }

  void keep(const chain& c) {
    if (c.best() <= best_.value) return;
    best_.value = c.best();
    best_.moments = c.moments;
    best_.passed = c.passed;
    best_.prices = c.prices;
  }

  /// Bounds each segment of the best chain by prices and by branching.
  void value_segments() {
    chain c;
    c.moments = best_.moments;
    c.passed = best_.passed;
    c.prices = best_.prices;
    branch_nodes_ = 16 * options_.branch_nodes;
    for (std::size_t i = 0; i < c.moments.size(); ++i) {
      const piece x = bound(c, i, false);
      if (x.value > 0) best_.prices[i] = x.price;
      best_.values.push_back(options_.branch_nodes > 0 ? std::max(x.value, bound(c, i, true).value) : x.value);
    }
  }

  /// The best chain without rates, by a program over the pairs of moments of `coarse`, or the first moment alone.
  chain start(const std::vector<std::uint32_t>& coarse) {
    const std::size_t m = coarse.size();
    std::vector<double> most(m + 1, 0);
    std::vector<std::size_t> from(m + 1, m);
    for (std::size_t j = 0; j <= m; ++j)
      for (std::size_t i = 0; i < j && !stopped(); ++i) {
        if (j < m && !precedes(coarse[i], coarse[j])) continue;
        segment s{.moment = coarse[i]};
        if (j < m) s.end = coarse[j];
        const double value = bound_by_price(s, 0).value;
        if (j == m) most_alone_ = std::max(most_alone_, value);
        if (j == m && from[i] < m) most_together_ = std::max(most_together_, most[i] + value);
        if (most[i] + value > most[j]) {
          most[j] = most[i] + value;
          from[j] = i;
        }
      }
    chain several, one;
    one.moments = {options_.first};
    for (std::size_t j = m; from[j] < m;) {
      j = from[j];
      several.moments.push_back(coarse[j]);
    }
    std::reverse(several.moments.begin(), several.moments.end());
    if (several.moments.empty()) several = one;
    for (chain* c : {&several, &one}) {
      c->prices.resize(c->moments.size());
      c->passed.resize(c->moments.size() - 1);
      c->value = evaluate(*c, false);
      if (branch_nodes_ > 0) c->whole = evaluate(*c, true);
      keep(*c);
    }
    return several.best() >= one.best() ? several : one;
  }

  /// True unless several moments without rates are far worse than one: rates seldom make up for that. Small graphs are
  /// always searched, and those on which whole tensors make a difference.
  [[nodiscard]] bool is_promising(const chain& c) const {
    if (c.moments.size() > 1 || graph_.num_operations <= small_graph || c.whole > large_tensors * c.value) return true;
    const double part = graph_.num_operations <= large_graph ? promising_part : promising_part_of_large;
    return most_together_ >= part * most_alone_;
  }

  static bool has(const std::vector<std::uint32_t>& list, std::uint32_t x) {
    return std::binary_search(list.begin(), list.end(), x);
  }

  /// How much of tensor `t` the segment of `x`, which begins at `moment`, passes on.
  [[nodiscard]] double supply(const piece& x, std::uint32_t moment, std::uint32_t t) const {
    if (relations_.is_own(moment, t)) return 1;
    const std::uint32_t p = graph_.producers[t][0];
    const auto by = [&](const choice_lists& c) { return has(c.resident, t) || has(c.runs, p) ? 1.0 : 0.0; };
    return x.share * by(x.low) + (1 - x.share) * by(x.high);
  }
  static double residency(const piece& x, std::uint32_t t) {
    return x.share * has(x.low.resident, t) + (1 - x.share) * has(x.high.resident, t);
  }

  static constexpr std::uint8_t later = moment_relations::later, earlier = moment_relations::earlier;

  /// `moment_relations::of`, kept.
  const std::vector<std::uint8_t>& relatives(std::uint32_t moment) {
    for (const auto& [o, mask] : relatives_)
      if (o == moment) return *mask;
    relatives_.push_back({moment, std::make_unique<std::vector<std::uint8_t>>(relations_.of(moment))});
    return *relatives_.back().second;
  }

  /// How much more of each tensor a segment holds at its beginning than the one before passes on: a subgradient of the
  /// bound in the rates between them. Without zeros.
  rates excess(const chain& c, std::size_t link) {
    const std::uint32_t moment = c.moments[link];
    const std::vector<std::uint8_t>& of_moment = relatives(moment);
    const std::vector<std::uint8_t>& of_end = relatives(c.moments[link + 1]);
    const auto runs_anyway = [&](std::uint32_t o) { return (of_moment[o] & later) && (of_end[o] & earlier); };
    std::vector<std::uint32_t> tensors;
    for (const tensor_rate& x : c.passed[link]) tensors.push_back(x.tensor);
    for (const choice_lists* x : {&pieces_[link + 1].low, &pieces_[link + 1].high})
      for (const std::uint32_t t : x->resident)
        if (graph_.producers[t].size() == 1 && !runs_anyway(graph_.producers[t][0])) tensors.push_back(t);
    std::sort(tensors.begin(), tensors.end());
    tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
    rates more;
    for (const std::uint32_t t : tensors) {
      const double x = residency(pieces_[link + 1], t) - supply(pieces_[link], moment, t);
      if (x != 0) more.push_back({t, x});
    }
    return more;
  }

  /// Returns `a` + `part` × `b`, without zeros.
  static rates sum(const rates& a, const rates& b, double part) {
    rates result;
    std::size_t i = 0, j = 0;
    while (i < a.size() || j < b.size()) {
      const std::uint32_t t =
          std::min(i < a.size() ? a[i].tensor : b[j].tensor, j < b.size() ? b[j].tensor : a[i].tensor);
      double value = 0;
      if (i < a.size() && a[i].tensor == t) value += a[i++].rate;
      if (j < b.size() && b[j].tensor == t) value += part * b[j++].rate;
      if (value != 0) result.push_back({t, value});
    }
    return result;
  }
  static rates positive_part(rates x) {
    x.erase(std::remove_if(x.begin(), x.end(), [](const tensor_rate& y) { return y.rate <= 0; }), x.end());
    return x;
  }

  void climb_both(chain& c, int steps, int whole_steps) {
    if (c.moments.size() < 2) return;
    climb(c, steps, false);
    if (branch_nodes_ > 0) climb(c, whole_steps, true);
  }

  /// Raises a chain's bound by subgradient steps on its rates. A step's length is that of Polyak's rule for a value
  /// somewhat above the best one, and at least `aim` at first. Leaves the best rates in `c`.
  void climb(chain& c, int steps, bool whole, double aim = 0) {
    double& best = whole ? c.whole : c.value;
    chain at = c;
    double hope = 0.1;  // the next value may be higher by this part
    int failures = 0;
    std::vector<rates> directions(c.passed.size());
    for (int i = 0; i < steps; ++i) {
      const double value = evaluate(at, whole);
      if (value == -infinity) return;
      for (std::size_t k = 0; k < at.prices.size(); ++k) at.prices[k] = pieces_[k].price;
      if (value > best) {
        best = value;
        c.passed = at.passed;
        c.prices = at.prices;
        failures = 0;
      } else if (i > 0 && ++failures >= 5) {
        hope /= 2;
        failures = 0;
        if (hope < 0.02) aim = 0;
        if (hope < 1e-4) return;
      }
      const double level = std::max(best + hope * std::max(std::abs(best), options_.tolerance), aim);
      double norm = 0;
      for (std::size_t k = 0; k < at.passed.size(); ++k) {
        directions[k] = sum(excess(at, k), directions[k], momentum);
        for (const tensor_rate& x : directions[k]) norm += x.rate * x.rate;
      }
      if (norm == 0) return;
      for (std::size_t k = 0; k < at.passed.size(); ++k)
        at.passed[k] = positive_part(sum(at.passed[k], directions[k], (level - value) / norm));
    }
  }

  /// Bounds a chain with its best rates by `factor` times as many nodes.
  void finish_branching(chain& c, std::uint32_t factor) {
    if (c.moments.size() < 2 || options_.branch_nodes == 0) return;
    branch_nodes_ = factor * options_.branch_nodes;
    c.whole = std::max(c.whole, evaluate(c, true));
    branch_nodes_ = options_.branch_nodes;
  }

  /// Inserts one moment at a time, as long as that raises the bound.
  void improve(chain& now) {
    const bool whole = branch_nodes_ > 0;
    for (int round = 0; round < max_rounds && !stopped(); ++round) {
      if (evaluate(now, whole) == -infinity) return;
      const std::vector<piece> old = pieces_;
      // The moments are tried in two orders: by the bound after some steps by prices, and by the bound of branching
      // with the rates as they are.
      std::vector<std::pair<double, chain>> climbed, unchanged;
      for (const std::uint32_t k : candidates_) {
        if (stopped()) break;
        chain next = now;
        std::size_t at = 0;
        if (!insert(next, k, at)) continue;
        if (whole) {
          double gain = bound(next, at, true).value;
          if (at > 0) gain += bound(next, at - 1, true).value - old[at - 1].value;
          if (at > 0 && at + 1 < next.moments.size())
            for (const tensor_rate& x : next.passed[at]) gain -= x.rate;
          if (gain > 0) unchanged.push_back({gain, next});
        }
        climb(next, screening_steps, false, 1.05 * now.value);
        keep(next);
        climbed.push_back({next.value, std::move(next)});
      }
      chain best = now;
      for (auto* list : {&climbed, &unchanged}) {
        std::stable_sort(list->begin(), list->end(), [](const auto& a, const auto& b) { return a.first > b.first; });
        if (list->size() > max_tries) list->resize(max_tries);
        for (auto& [value, next] : *list) {
          if (list == &climbed) climb(next, 30, false);
          if (whole) climb(next, 8, true);
          finish_branching(next, 4);
          keep(next);
          if (next.best() > best.best()) best = next;
        }
      }
      const bool gained = best.best() > now.best() + std::max(options_.tolerance, least_gain * now.best());
      now = std::move(best);
      if (!gained) return;
    }
  }

  /// Inserts moment `k`, and says where. A link that it splits leaves its rates to both halves. Returns false if the
  /// moments do not depend on each other.
  [[nodiscard]] bool insert(chain& c, std::uint32_t k, std::size_t& at) const {
    at = static_cast<std::size_t>(std::lower_bound(c.moments.begin(), c.moments.end(), k) - c.moments.begin());
    if (at < c.moments.size() && !precedes(k, c.moments[at])) return false;
    if (at > 0 && !precedes(c.moments[at - 1], k)) return false;
    const auto place = static_cast<std::ptrdiff_t>(at);
    const rates split = at > 0 && at < c.moments.size() ? c.passed[at - 1] : rates{};
    c.passed.insert(c.passed.begin() + std::min(place, static_cast<std::ptrdiff_t>(c.passed.size())), split);
    c.prices.insert(c.prices.begin() + place, at < c.prices.size() ? c.prices[at] : c.prices.back());
    c.moments.insert(c.moments.begin() + place, k);
    c.value = c.whole = -infinity;
    return true;
  }

  moment_cut& cut_;
  const flat_graph& graph_;
  moment_relations relations_{graph_};
  std::int64_t budget_;
  const moment_chain_options& options_;
  const std::function<bool()>& stop_;
  std::uint32_t branch_nodes_ = options_.branch_nodes;
  bool stopped_ = false;
  std::uint32_t flows_ = 0;
  std::vector<std::uint32_t> candidates_;
  std::vector<std::uint8_t> precedes_;  // whether the first of each pair of candidates precedes the second
  // The moments so far, with their relatives.
  std::vector<std::pair<std::uint32_t, std::unique_ptr<std::vector<std::uint8_t>>>> relatives_;
  std::vector<piece> pieces_;
  double most_alone_ = 0, most_together_ = 0;  // the best bounds of one moment, and of several, without rates
  moment_chain best_;
};

}  // namespace moment_chain_search

/// Searches for a chain of moments with a high bound. Every bound that it meets is valid (docs/bounds.md, section 7).
///
/// The moments cut the schedule into segments. A run in one segment is no run in another one, so the times of further
/// runs add up. A rate on a tensor at a moment makes a segment pay for what it holds at its beginning, and the one
/// before for what it does not pass on; so the two may be bounded one by one. Steps:
///  1. the best chain without rates, by a program over all pairs of `coarse`;
///  2. subgradient steps on the rates, first with the best price of each segment, then with whole tensors;
///  3. one more moment of `candidates` at a time, as long as that helps.
/// Graphs of some size on which step 1 promises nothing are left after it.
///
/// Both lists ascend; `coarse` is a part of `candidates`, which are needed operations whose working sets fit into the
/// budget. Deterministic unless `stop` ends it, which is polled before each wave of a flow.
[[nodiscard]] inline moment_chain find_moment_chain(moment_cut& cut, std::int64_t budget,
                                                    const std::vector<std::uint32_t>& candidates,
                                                    const std::vector<std::uint32_t>& coarse,
                                                    const moment_chain_options& options,
                                                    const std::function<bool()>& stop = {}) {
  return moment_chain_search::search(cut, budget, options, stop).run(candidates, coarse);
}

}  // namespace REMAT_NAMESPACE::detail
