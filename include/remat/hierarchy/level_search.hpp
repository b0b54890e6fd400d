// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/hierarchy/level_builder.hpp"
#include "remat/hierarchy/level_problem.hpp"
#include "remat/problem/problem.hpp"
#include "remat/solver/evict.hpp"
#include "remat/solver/twremat.hpp"

namespace remat {

struct level_search_options {
  std::uint32_t prices = 10;  ///< of saved bytes that are tried
  std::uint32_t rounds = 2;   ///< over all children, trying the options next to the chosen one
  bool insist = true;         ///< where eviction finds nothing within the budget, `twremat` is asked
  run_control run{};
};

/// Schedules of a level: an option is fixed for each child by a price on saved bytes, which leaves an ordinary problem,
/// and `evict` (where it finds none, `twremat`) solves that; then single children's options are exchanged while that
/// helps. Heuristic; a start for the integer program, and all there is where that is too large.
///
/// `take(choices)` is called with every schedule found; it returns what the schedule is worth (less is better),
/// infinity for none. So the caller may judge by the operations that it expands to. Polls before each problem, of which
/// there are at most prices + rounds · 2 · children; counts each as one move.
template <class Take>
void search_level(const level_builder& builder, std::span<const level_child> children, std::int64_t budget,
                  run_clock& clock, const level_search_options& options, Take&& take) {
  using vector = std::vector<std::uint32_t>;
  constexpr double infinite = std::numeric_limits<double>::infinity();
  // Time per byte at which a child changes its option.
  std::vector<double> prices;
  for (const level_child& c : children)
    for (std::size_t a = 0; a < c.options.size(); ++a)
      for (std::size_t b = a + 1; b < c.options.size(); ++b)
        if (c.options[a].saved_bytes > c.options[b].saved_bytes && c.options[a].time() < c.options[b].time())
          prices.push_back((c.options[b].time() - c.options[a].time()) /
                           static_cast<double>(c.options[a].saved_bytes - c.options[b].saved_bytes));
  std::sort(prices.begin(), prices.end());
  prices.erase(std::unique(prices.begin(), prices.end()), prices.end());
  const auto at_price = [&](double price) {
    vector option(children.size(), 0);
    for (std::size_t c = 0; c < children.size(); ++c) {
      double least = infinite;
      for (std::uint32_t o = 0; o < children[c].options.size(); ++o) {
        const part_option& way = children[c].options[o];
        const double cost = way.time() + price * static_cast<double>(way.saved_bytes);
        if (cost < least) {
          least = cost;
          option[c] = o;
        }
      }
    }
    return option;
  };
  std::set<vector> tried;
  vector best;
  double best_value = infinite;
  const auto attempt = [&](const vector& option, bool insist) {
    if (!tried.insert(option).second) return false;
    clock.work();
    // The careful count is for where the other one was too little.
    for (const bool careful : {false, true}) {
      const problem p = builder.with_options(option, budget, careful);
      evict_options evicting;
      evicting.insist = insist;
      evicting.run.stop = options.run.stop;
      evicting.run.seed = options.run.seed;
      solution s = evict(p, evicting);
      if (!s.plan && insist && s.status != solve_status::infeasible) {
        twremat_options other;
        other.run.stop = options.run.stop;
        s = twremat(p, other);
      }
      if (!s.plan) return false;
      const double value = take(builder.choices_of(*s.plan, option));
      if (value == infinite) continue;
      if (value >= best_value) return false;
      best_value = value;
      best = option;
      return true;
    }
    return false;
  };
  std::vector<vector> starts{at_price(0)};
  const std::size_t steps = std::min<std::size_t>(options.prices, prices.size());
  for (std::size_t k = 0; k < steps; ++k) starts.push_back(at_price(prices[k * prices.size() / steps] * (1 + 1e-9)));
  if (!prices.empty()) starts.push_back(at_price(prices.back() * 2));
  for (const vector& option : starts) {
    if (clock.should_stop()) return;
    attempt(option, options.insist);
  }
  for (std::uint32_t round = 0; round < options.rounds && !best.empty(); ++round) {
    bool better = false;
    for (std::size_t c = 0; c < children.size(); ++c)
      for (const int by : {-1, 1}) {
        if (clock.should_stop()) return;
        if (by < 0 ? best[c] == 0 : best[c] + 1 >= children[c].options.size()) continue;
        vector option = best;
        option[c] += static_cast<std::uint32_t>(by);
        better = attempt(option, false) || better;
      }
    if (!better) break;
  }
}

}  // namespace remat
