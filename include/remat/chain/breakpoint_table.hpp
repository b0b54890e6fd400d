// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "remat/chain/chain_schedule.hpp"
#include "remat/chain/row_sweep.hpp"
#include "remat/chain/sized_chain.hpp"
#include "remat/chain/traceback.hpp"
#include "remat/core/control.hpp"
#include "remat/core/error.hpp"

namespace remat::detail::persistent {

/// From `memory` on, up to the next breakpoint, D is `excess`.
struct breakpoint {
  std::int64_t memory = 0;
  double excess = 0;
};

/// The table of the dynamic program without slots: the recurrence of `slot_table`, with memory in any unit, bytes among
/// them. Each D(s, t, ·) is a step function that falls, and is held as the list of its breakpoints (the Pareto-optimal
/// pairs of memory and time) up to `room`.
///
/// Keeping s whole moves the list of (s + 1, t); keeping the input of j adds two step functions; their minimum is taken
/// list by list, and only where a bound of the candidate is below the best so far. A list can grow exponentially with
/// t − s, but holds no more than what `bound` and `room` leave: with a good bound, few. `fill` counts the breakpoints
/// that it looks at, and gives up at a limit of them.
class exact_table {
 public:
  /// `c` in any unit; it and `bound` have to outlive the table.
  exact_table(const sized_chain& c, std::int64_t room, const excess_bound& bound)
      : c_(&c), bound_(&bound), room_(room), n_(c.length), layout_(bound) {}

  /// Rows (s, t) to fill.
  [[nodiscard]] std::uint64_t rows() const noexcept { return layout_.rows(); }
  /// Bytes of the table so far.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  /// Breakpoints looked at so far.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_.load(std::memory_order_relaxed); }

  /// As that of `slot_table`. `most_work`: give up after so many breakpoints; the same decision for any threads.
  template <class Tell>
  fill_outcome fill(const run_clock& clock, unsigned threads, std::int64_t most_bytes, std::uint64_t most_work,
                    Tell&& tell) {
    bytes_ = static_cast<std::int64_t>(layout_.rows() * sizeof(row));
    if (bytes() > most_bytes) return fill_outcome::too_large;
    rows_.resize(layout_.rows());
    const double work = static_cast<double>(rows()) * n_;
    threads = std::clamp(threads, 1U, work < 2e5 ? 1 : n_ / 4 + 1);
    std::vector<workspace> spaces(threads);
    for (workspace& own : spaces) own.column.resize(n_ + std::size_t{2});
    std::uint64_t filled = 0;
    return sweep_rows(
        layout_, threads,
        [&](unsigned thread, std::uint32_t s, std::uint32_t t) {
          workspace& own = spaces[thread];
          own.work = 0;
          own.most_work = most_work;
          const auto size = static_cast<std::int64_t>(fill_row(own, s, t, clock) * sizeof(breakpoint));
          const std::int64_t bytes = bytes_.fetch_add(size, std::memory_order_relaxed) + size;
          const std::uint64_t looked = work_.fetch_add(own.work, std::memory_order_relaxed) + own.work;
          if (own.stopped) return fill_outcome::stopped;
          return bytes > most_bytes || looked > most_work ? fill_outcome::too_large : fill_outcome::filled;
        },
        [&](std::uint64_t count) {
          if (clock.should_stop()) return true;
          filled += count;
          tell(std::min<std::uint64_t>(filled * threads, rows()), rows());
          return false;
        });
  }

  /// D(1, n, ·), memory ascending, excess falling. Empty: no schedule within the bound.
  [[nodiscard]] std::span<const breakpoint> frontier() const { return rows_[layout_.place(1, n_)].steps; }
  /// C(1, n, ·) at a breakpoint.
  [[nodiscard]] double cost(const breakpoint& b) const { return b.excess + bound_->least[n_]; }

  /// The steps behind C(1, n, m). Precondition: it is finite.
  [[nodiscard]] std::vector<chain_step> steps(std::int64_t m) const {
    const auto at = [this](std::uint32_t s, std::uint32_t t, std::int64_t memory) {
      return layout_.stored(s, t) ? value(rows_[layout_.place(s, t)].steps, memory) : infinite;
    };
    return traceback(*c_, *bound_, layout_, at).steps(m);
  }

 private:
  static constexpr double infinite = std::numeric_limits<double>::infinity();
  using list = std::vector<breakpoint>;

  struct row {
    list steps{};
    std::int64_t run = 0;  ///< run_need(s, t)
  };
  struct workspace {
    list best{}, offered{}, merged{};
    std::vector<const row*> column{};  // [j]: (j, t)
    std::uint64_t work = 0, most_work = 0;
    bool stopped = false;
  };

  [[nodiscard]] static double value(const list& steps, std::int64_t m) noexcept {
    const auto after = std::upper_bound(steps.begin(), steps.end(), m,
                                        [](std::int64_t memory, const breakpoint& b) { return memory < b.memory; });
    return after == steps.begin() ? infinite : std::prev(after)->excess;
  }

  /// Takes the minimum of best and offered. Both are proper lists.
  static void merge_offer(workspace& own) {
    const list& offered = own.offered;
    own.work += offered.size();
    // Where does it win first?
    std::size_t k = 0, b = 0;
    for (; k < offered.size(); ++k) {
      while (b < own.best.size() && own.best[b].memory <= offered[k].memory) ++b;
      if (b == 0 || offered[k].excess < own.best[b - 1].excess) break;
    }
    own.work += b;
    if (k == offered.size()) return;
    list& out = own.merged;
    out.clear();
    // Breakpoints of best at the same place give way.
    while (b > 0 && own.best[b - 1].memory == offered[k].memory) --b;
    out.insert(out.end(), own.best.begin(), own.best.begin() + static_cast<std::ptrdiff_t>(b));
    double least = b == 0 ? infinite : out.back().excess;
    const auto add = [&](const breakpoint& next) {
      if (next.excess >= least) return;
      least = next.excess;
      if (!out.empty() && out.back().memory == next.memory)
        out.back().excess = least;
      else
        out.push_back(next);
    };
    while (k < offered.size() && b < own.best.size())
      add(offered[k].memory <= own.best[b].memory ? offered[k++] : own.best[b++]);
    for (; k < offered.size(); ++k) add(offered[k]);
    for (; b < own.best.size(); ++b) add(own.best[b]);
    own.work += out.size();
    own.best.swap(out);
  }

  /// offered = (add + D(·)), moved by `shift`, from `from` on, below `until`.
  static void offer_moved(workspace& own, double add, const list& steps, std::int64_t shift, std::int64_t from,
                          std::int64_t until, double most) {
    own.offered.clear();
    for (const breakpoint& b : steps) {
      const std::int64_t memory = std::max(b.memory + shift, from);
      if (memory >= until) break;
      const double excess = add + b.excess;
      if (excess > most) continue;
      if (!own.offered.empty() && own.offered.back().memory == memory)
        own.offered.back().excess = excess;
      else
        own.offered.push_back({memory, excess});
    }
    own.work += steps.size();
    merge_offer(own);
  }

  /// offered = (add + A(m − shift_a)) + B(m − shift_b), from `from` on, below `until`.
  static void offer_sum(workspace& own, double add, const list& a, std::int64_t shift_a, const list& b,
                        std::int64_t shift_b, std::int64_t from, std::int64_t until, double most) {
    list& out = own.offered;
    out.clear();
    std::size_t i = 0, k = 0;  // those before i, k have been passed
    while (i < a.size() && a[i].memory + shift_a <= from) ++i;
    while (k < b.size() && b[k].memory + shift_b <= from) ++k;
    std::int64_t memory = from;  // i and k are positive: both are finite there
    for (;;) {
      const double excess = (add + a[i - 1].excess) + b[k - 1].excess;
      if (excess <= most) out.push_back({memory, excess});
      const std::int64_t next_a = i < a.size() ? a[i].memory + shift_a : until;
      const std::int64_t next_b = k < b.size() ? b[k].memory + shift_b : until;
      memory = std::min(next_a, next_b);
      if (memory >= until) break;
      i += next_a == memory;
      k += next_b == memory;
    }
    own.work += i + k;
    merge_offer(own);
  }

  /// Fills row (s, t), and returns how many breakpoints it has.
  std::size_t fill_row(workspace& own, std::uint32_t s, std::uint32_t t, const run_clock& clock) {
    const sized_chain& c = *c_;
    const sized_stage& stage = c.stages[s];
    row& out = rows_[layout_.place(s, t)];
    const std::uint32_t last_before = s == t ? 0 : layout_.before(s, t);
    const row* const before = rows_.data() + layout_.begin(s);  // [t' − s]: (s, t')
    const bool follows = s < t && last_before + 1 == t;
    out.run = s == t    ? stage.fast_need
              : follows ? std::max(before[t - 1 - s].run, c.x(s, t - 1) + c.stages[t].fast_need)
                        : c.run_need(s, t);
    const std::int64_t beside = s < t ? c.stages[t].gradient + c.stages[s - 1].transient : std::int64_t{0};
    std::int64_t base = 0;  // of all choices
    if (s < t && c.strict()) base = beside + (follows ? before[t - 1 - s].run : c.run_need(s, t - 1));
    const double most = bound_->most(s, t);
    const double spent = c.least_time(s);
    const std::int64_t behind = s < t ? bound_->made_behind(s + 1, t) : 0;
    const std::int64_t end = room_ + 1;
    std::uint64_t looked = 0;
    own.best.clear();
    for (std::uint32_t o = stage.first_option; o < stage.last_option; ++o) {
      const keep_option& way = c.options[o];
      const std::int64_t from = std::max(c.keep_need(way, s, t, behind), base);
      if (from >= end) continue;
      if (s == t) {
        own.offered.assign(1, {from, way.last_time - spent});
        if (own.offered[0].excess <= most) merge_offer(own);
      } else {
        offer_moved(own, way.time - spent, own.column[s + 1]->steps, c.saved(o, t), from, end, most);
      }
    }
    if (s < t && t < n_ && c.stages[t].idle)
      offer_moved(own, c.stages[t].backward - c.least_time(t), before[t - 1 - s].steps, c.stages[t].outputs,
                  c.stages[s - 1].transient + c.stages[t].idle_need, end, most);
    for (std::uint32_t j = s + 1; j <= last_before + 1; ++j) {
      const double add = bound_->advanced[j - 1] - bound_->advanced[s - 1];
      if (add > most) break;
      const list& a = own.column[j]->steps;
      const list& b = before[j - 1 - s].steps;
      if (a.empty() || b.empty()) continue;
      const std::int64_t kept = c.h(s, j - 1), made = bound_->made_behind(j, t);
      const std::int64_t need = c.strict() ? base : beside + before[j - 1 - s].run;
      const std::int64_t from = std::max({need, kept + a.front().memory, made + b.front().memory});
      const double lower = (add + a.back().excess) + b.back().excess;
      if (from >= end || lower > most) continue;
      // From where on the best is not above the bound.
      const auto settled =
          std::partition_point(own.best.begin(), own.best.end(), [&](const breakpoint& k) { return k.excess > lower; });
      const std::int64_t until = settled == own.best.end() ? end : settled->memory;
      if (from >= until) continue;
      offer_sum(own, add, a, kept, b, made, from, until, most);
      // The row is of no use then: the fill ends at it.
      if (own.work > own.most_work) break;
      if (own.work - looked > 1'000'000) {
        looked = own.work;
        if (clock.should_stop()) {
          own.stopped = true;
          break;
        }
      }
    }
    out.steps.assign(own.best.begin(), own.best.end());
    own.column[s] = &out;
    return out.steps.size();
  }

  const sized_chain* c_;
  const excess_bound* bound_;
  std::int64_t room_;
  std::uint32_t n_;
  row_layout layout_;
  std::vector<row> rows_;
  std::atomic<std::int64_t> bytes_{0};
  std::atomic<std::uint64_t> work_{0};
};

}  // namespace remat::detail::persistent
