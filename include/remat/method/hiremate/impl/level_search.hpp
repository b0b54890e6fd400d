// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/hiremate/impl/level_builder.hpp"
#include "remat/method/rockmate/detail/sub_solvers.hpp"
#include "remat/method/twremat.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"

namespace REMAT_NAMESPACE::detail {

struct level_search_options {
  std::uint32_t prices = 10;  ///< prices of saved bytes that are tried
  std::uint32_t rounds = 2;   ///< rounds over all children, trying the ways next to the chosen one
  bool escalate = true;       ///< try harder for the ways that a price gives
};

/// The best schedule that `search_level` has found.
struct level_search_result {
  std::optional<schedule> plan{};                         ///< legal and within the budget; none: none was found
  double time = std::numeric_limits<double>::infinity();  ///< the plan's time
  std::vector<level_problem::choice> choices{};           ///< the schedule of the level that expands to the plan
  std::size_t problems = 0;                               ///< problems that were solved
};

/// Expands a schedule of a level to one of the problem to which the level belongs.
using level_expansion = std::function<schedule(std::span<const level_problem::choice>)>;

namespace level_search {

using chosen_ways = std::vector<std::uint32_t>;  // each child's way

class searcher {
 public:
  searcher(const level_builder& builder, std::span<const level_child> children, const problem& p, run_clock& clock,
           const level_search_options& options, const level_expansion& expand)
      : builder_(builder), children_(children), problem_(p), clock_(clock), options_(options), expand_(expand) {}

  level_search_result run() {
    try_prices();
    for (std::uint32_t round = 0; round < options_.rounds && !best_.empty(); ++round)
      if (!exchange_ways()) break;
    return std::move(out_);
  }

 private:
  void try_prices() {
    const std::vector<double> prices = critical_prices();
    std::vector<chosen_ways> starts{ways_at(0)};
    const std::size_t steps = std::min<std::size_t>(options_.prices, prices.size());
    for (std::size_t k = 0; k < steps; ++k) starts.push_back(ways_at(prices[k * prices.size() / steps] * (1 + 1e-9)));
    if (!prices.empty()) starts.push_back(ways_at(prices.back() * 2));
    for (const chosen_ways& chosen : starts) {
      if (clock_.should_stop()) return;
      attempt(chosen, options_.escalate);
    }
  }

  /// Times per byte at which a child changes its way, ascending.
  [[nodiscard]] std::vector<double> critical_prices() const {
    std::vector<double> prices;
    for (const level_child& c : children_)
      for (std::size_t a = 0; a < c.ways.size(); ++a)
        for (std::size_t b = a + 1; b < c.ways.size(); ++b)
          if (c.ways[a].saved_bytes > c.ways[b].saved_bytes && c.ways[a].time() < c.ways[b].time())
            prices.push_back((c.ways[b].time() - c.ways[a].time()) /
                             static_cast<double>(c.ways[a].saved_bytes - c.ways[b].saved_bytes));
    sort_unique(prices);
    return prices;
  }

  /// The way of least time + price · saved bytes of each child.
  [[nodiscard]] chosen_ways ways_at(double price) const {
    chosen_ways chosen(children_.size(), 0);
    for (std::size_t c = 0; c < children_.size(); ++c) {
      double least = std::numeric_limits<double>::infinity();
      for (std::uint32_t o = 0; o < children_[c].ways.size(); ++o) {
        const sub_graph_way& way = children_[c].ways[o];
        const double cost = way.time() + price * static_cast<double>(way.saved_bytes);
        if (cost < least) {
          least = cost;
          chosen[c] = o;
        }
      }
    }
    return chosen;
  }

  /// One round over all children, each with the ways next to its own. Returns whether to go on.
  [[nodiscard]] bool exchange_ways() {
    bool better = false;
    for (std::size_t c = 0; c < children_.size(); ++c)
      for (const int by : {-1, 1}) {
        if (clock_.should_stop()) return false;
        if (by < 0 ? best_[c] == 0 : best_[c] + 1 >= children_[c].ways.size()) continue;
        chosen_ways chosen = best_;
        chosen[c] += static_cast<std::uint32_t>(by);
        better = attempt(chosen, false) || better;
      }
    return better;
  }

  /// Solves the level with these ways. Returns whether the schedule is the best so far.
  bool attempt(const chosen_ways& chosen, bool escalate) {
    if (!tried_.insert(chosen).second) return false;
    // The careful count of memory is for levels in which the other count said too little.
    for (const bool careful : {false, true}) {
      if (clock_.should_stop()) return false;
      const problem p = builder_.with_ways(chosen, problem_.budget(), careful);
      ++out_.problems;
      const sub_solution s = solve(p, escalate);
      clock_.work(std::max<std::uint64_t>(s.work, p.graph().num_operations));
      if (!s.plan) return false;
      std::vector<level_problem::choice> choices = builder_.choices_of(*s.plan, chosen);
      schedule plan = expand_(choices);
      const check_report r = check(problem_, plan);
      if (!r.valid()) continue;
      if (r.time >= out_.time) return false;
      out_.plan = std::move(plan);
      out_.time = r.time;
      out_.choices = std::move(choices);
      best_ = chosen;
      return true;
    }
    return false;
  }

  /// A schedule by `evict`; to escalate, with its last resorts, and then by `twremat`.
  [[nodiscard]] sub_solution solve(const problem& p, bool escalate) const {
    run_control run = clock_.limits();
    run.threads = 1;
    run_clock mine(run);
    evict_options options;
    options.insist = escalate;
    options.run = run;
    sub_solution first = to_sub_solution(evict(p, options));
    mine.work(first.work);
    if (!escalate || first.plan || first.infeasible() || mine.should_stop()) return first;
    twremat_options other;
    other.attempts = 2;
    other.run = mine.limits();
    sub_solution second = to_sub_solution(twremat(p, other));
    second.work += first.work;
    return second;
  }

  const level_builder& builder_;
  std::span<const level_child> children_;
  const problem& problem_;
  run_clock& clock_;
  const level_search_options& options_;
  const level_expansion& expand_;
  std::set<chosen_ways> tried_;
  chosen_ways best_;
  level_search_result out_{};
};

}  // namespace level_search

/// The best schedule of a level within the budget of `p`, the problem to which it belongs: a way is fixed for each
/// child by a price on saved bytes, which leaves an ordinary problem for `evict` (to escalate: with its last resorts,
/// and then `twremat`); then single children's ways are exchanged while that helps. Heuristic; a start for the integer
/// program, and the only method if that is too large.
///
/// Every schedule found is expanded, and counts by what `check` says of that. Solves at most 2 · (prices + 2 + rounds ·
/// 2 · children) problems, and counts their work. Polls before each; the solvers keep the limits themselves. Exceptions
/// of `expand` propagate.
[[nodiscard]] inline level_search_result search_level(const level_builder& builder,
                                                      std::span<const level_child> children, const problem& p,
                                                      run_clock& clock, const level_search_options& options,
                                                      const level_expansion& expand) {
  return detail::level_search::searcher(builder, children, p, clock, options, expand).run();
}

}  // namespace REMAT_NAMESPACE::detail
