// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/row_sweep.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/core/error.hpp"

namespace remat::detail {

/// Finds the steps behind a value of a filled table. The table holds no choices: each is found again by computing what
/// the fill of the table computed, with the same operations in the same order, until the values are equal.
///
/// `at(s, t, m)` is D(s, t, m) of the table: infinite if the table has no such row, or m is negative.
/// O(steps · (stages + options of a stage)) look-ups. Throws `internal_error` if no choice explains a value.
template <class At>
class traceback {
 public:
  traceback(const sized_chain& c, const excess_bound& bound, const row_layout& layout, At at)
      : c_(c), bound_(bound), layout_(layout), at_(std::move(at)) {}

  /// The steps behind C(1, n, m). Precondition: it is finite.
  [[nodiscard]] std::vector<chain_step> steps(std::int64_t m) const {
    struct range {
      std::uint32_t s, t, option;
      std::int64_t m;
    };
    std::vector<chain_step> out;
    std::vector<range> left{{1, layout_.length(), 0, m}};  // t = 0: the backward of s
    while (!left.empty()) {
      const range now = left.back();
      left.pop_back();
      if (now.t == 0) {
        out.push_back({chain_action::backward, now.s, now.option});
        continue;
      }
      const auto [j, o] = choice(now.s, now.t, now.m);
      if (j == 0) {
        out.push_back({chain_action::backward, now.t, 0});
        left.push_back({now.s, now.t - 1, 0, now.m - c_.stages[now.t].outputs});
        continue;
      }
      if (j == now.s) {
        const std::uint32_t option = o - c_.stages[now.s].first_option;
        out.push_back({chain_action::forward_all, now.s, option});
        left.push_back({now.s, 0, option, 0});
        if (now.s < now.t) left.push_back({now.s + 1, now.t, 0, now.m - c_.saved(o, now.t)});
        continue;
      }
      for (std::uint32_t i = now.s; i < j; ++i)
        out.push_back({i == now.s ? chain_action::forward_checkpoint : chain_action::forward_none, i, 0});
      left.push_back({now.s, j - 1, 0, now.m - bound_.made_behind(j, now.t)});
      left.push_back({j, now.t, 0, now.m - c_.h(now.s, j - 1)});
    }
    return out;
  }

 private:
  /// The choice behind D(s, t, m): (0, 0) for no forward of t; (s, o) for s kept whole by option o; (j, 0) for the
  /// input of j kept alone.
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> choice(std::uint32_t s, std::uint32_t t, std::int64_t m) const {
    const sized_chain& c = c_;
    const double excess = at_(s, t, m);
    const std::int64_t beside = s < t ? c.stages[t].gradient + c.stages[s - 1].transient : 0;
    const std::int64_t base = s < t && c.strict() ? beside + c.run_need(s, t - 1) : 0;
    if (s < t && t < layout_.length() && c.stages[t].idle && m >= c.stages[s - 1].transient + c.stages[t].idle_need) {
      const double add = c.stages[t].backward - c.least_time(t);
      if (excess == add + at_(s, t - 1, m - c.stages[t].outputs)) return {0, 0};
    }
    const std::int64_t behind = s < t ? bound_.made_behind(s + 1, t) : 0;
    const double spent = c.least_time(s);
    for (std::uint32_t o = c.stages[s].first_option; o < c.stages[s].last_option; ++o) {
      const keep_option& way = c.options[o];
      if (m < c.keep_need(way, s, t, behind) || m < base) continue;
      const double time = s == t ? way.last_time - spent : (way.time - spent) + at_(s + 1, t, m - c.saved(o, t));
      if (excess == time) return {s, o};
    }
    std::int64_t run = 0;
    for (std::uint32_t j = s + 1; j <= t; ++j) {
      run = std::max(run, (j == s + 1 ? 0 : c.x(s, j - 2)) + c.stages[j - 1].fast_need);
      if (m < (c.strict() ? base : beside + run) || !layout_.stored(s, j - 1)) continue;
      const double add = bound_.advanced[j - 1] - bound_.advanced[s - 1];
      if (excess == (add + at_(j, t, m - c.h(s, j - 1))) + at_(s, j - 1, m - bound_.made_behind(j, t))) return {j, 0};
    }
    throw internal_error("no choice of the table of a chain explains its cost");
  }

  const sized_chain& c_;
  const excess_bound& bound_;
  const row_layout& layout_;
  At at_;
};

}  // namespace remat::detail
