// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/bound/detail/moment_order.hpp"
#include "remat/bound/detail/price_search.hpp"
#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE::detail {

namespace rerun_limit_search {

/// Returns a bound on the time of what runs again at the moment of the cut, for choices that fit into the free bytes
/// and keep what is fixed: that of the best price of a byte, or the first one above `enough`. Infinite: there is no
/// such choice. `price`: the first price to try; left at the best one.
inline double bound_by_price(moment_cut& cut, std::int64_t free_bytes, double enough, double tolerance,
                             run_clock& clock, double& price) {
  const std::function<bool()> stop = [&] { return clock.should_stop(); };
  constexpr int max_flows = 24;
  price_search search(cut, free_bytes, price, max_flows);
  double best = 0;
  while (best <= enough && !stop() && search.run_flow(best + tolerance, stop)) {
    clock.work(work_of::flow);  // afterwards, since the last work of the limit is for this flow
    if (search.value() > best) {
      best = search.value();
      if (search.price() > 0) price = search.price();
    }
    if (search.is_infeasible() || best > 1.5 * cut.total_cost()) return std::numeric_limits<double>::infinity();
  }
  return best;
}

/// The tensors that are priced at the moment and that each operation alone makes: candidates of the cut.
inline std::vector<std::vector<std::size_t>> candidates_of_operations(const moment_cut& cut) {
  const flat_graph& g = cut.graph();
  std::vector<std::vector<std::size_t>> of(g.num_operations);
  for (std::size_t i = 0; i < cut.num_candidates(); ++i) {
    const auto producers = g.producers[static_cast<std::uint32_t>(index(cut.candidate(i)))];
    if (producers.size() == 1 && of[producers.front()].size() < 200) of[producers.front()].push_back(i);
  }
  return of;
}

}  // namespace rerun_limit_search

/// The phases in which an operation may run again, if the schedule may take at most a given time.
///
/// Both limits come from turnaround bounds (`moment_cut`) at the first run of each needed operation a:
///  - What runs again *before* it takes its own time beyond the bound. If both together are too long, the operation
///    does not run again in the phase of a, or in one before.
///  - What runs again *after* it makes its outputs after it, so they need not be resident there. If the bound for such
///    choices alone is too long, the operation does not run again in any phase after that of a.
/// The limits hold for every schedule whose first runs are in the listed order. `checkmate_model_options::rule` takes
/// them; docs/checkmate.md says how many decisions go.
///
/// Each bound is that of the best price of a byte (`price_search`), which is sought from that of the moment before.
/// Some flows for each moment, and for each pair of a moment and an operation before it. A flow is `work_of::flow`.
/// Polls the limits of `run` before and within each flow; a search that is stopped forbids less.
class rerun_limits {
 public:
  /// The limits of the second kind are not computed for more operations: the number of pairs would be too large.
  static constexpr std::uint32_t max_operations = 1000;

  /// Limits for schedules of `p` that take at most `at_most`. For an infinite time nothing is forbidden. Without a
  /// budget, only operations are forbidden that take longer than `at_most` allows beside the needed time.
  rerun_limits(const problem& p, double at_most, const run_control& run = {}) {
    constexpr double infinite = std::numeric_limits<double>::infinity();
    const flat_graph& g = p.graph();
    const double slack = at_most * (1 + 1e-9) - g.needed_time, tolerance = 1e-7 * g.needed_time;
    time_.assign(g.time.begin(), g.time.end());
    slack_.assign(g.num_operations, slack);
    last_.assign(g.num_operations, g.num_operations);
    if (!p.has_budget() || slack == infinite) return;
    run_clock clock(run);
    const std::vector<std::int64_t> listed = listed_memory(g);
    moment_cut cut(g);
    double price = g.needed_time / static_cast<double>(std::max<std::int64_t>(g.baseline_peak, 1));
    for (std::uint32_t a = 0; a < g.num_operations && !clock.should_stop(); ++a) {
      const std::int64_t free_bytes = p.budget() - working_set_bytes(g, a);
      if (!g.needed[a] || free_bytes < 0 || listed[a] <= p.budget()) continue;
      cut.at(a);
      double best_price = price;
      const double bound = rerun_limit_search::bound_by_price(cut, free_bytes, infinite, tolerance, clock, best_price);
      if (!(bound > 0)) continue;
      price = best_price;
      recomputation_ = std::max(recomputation_, bound);
      slack_[a] = slack - bound;
      if (g.num_operations > max_operations) continue;
      const auto candidates = rerun_limit_search::candidates_of_operations(cut);
      for (std::uint32_t o = 0; o < a && !clock.should_stop(); ++o) {
        if (candidates[o].empty() || last_[o] <= a) continue;
        for (const std::size_t i : candidates[o]) cut.fix(i, moment_cut::fixing::absent);
        double other = price;
        if (rerun_limit_search::bound_by_price(cut, free_bytes, slack, tolerance, clock, other) > slack) last_[o] = a;
        for (const std::size_t i : candidates[o]) cut.fix(i, moment_cut::fixing::free);
      }
    }
    // A run in an earlier phase comes before the first run of every later operation, too.
    for (std::uint32_t a = g.num_operations; a-- > 1;) slack_[a - 1] = std::min(slack_[a - 1], slack_[a]);
    work_ = clock.work_done();
    complete_ = !clock.should_stop();
  }

  /// True if operation `o` may run again in the phase that ends with the first run of operation `a`.
  [[nodiscard]] bool allows(op_id a, op_id o) const {
    return time_[index(o)] <= slack_[index(a)] && index(a) <= last_[index(o)];
  }
  /// The highest turnaround bound that was found, on the time of what runs again.
  [[nodiscard]] double recomputation() const noexcept { return recomputation_; }
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }
  /// False if a limit or a stop request ended the search.
  [[nodiscard]] bool is_complete() const noexcept { return complete_; }

 private:
  std::vector<double> time_, slack_;  // each operation's time; the time that is left in its phase
  std::vector<std::uint32_t> last_;   // the operation in whose phase an operation may run again the last time
  double recomputation_ = 0;
  std::uint64_t work_ = 0;
  bool complete_ = true;
};

}  // namespace REMAT_NAMESPACE::detail
