// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include "remat/chain/detail/row_sweep.hpp"
#include "remat/chain/detail/row_table.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/core/run.hpp"

namespace REMAT_NAMESPACE::detail {

namespace breakpoints {
class row_filler;
}

/// A step of a falling step function: from `memory` on, up to the next breakpoint, D is `excess`.
struct breakpoint {
  std::int64_t memory = 0;  ///< memory in the unit of the chain
  double excess = 0;        ///< the time beyond what every schedule spends
};

/// D(s, t, ·) of a `breakpoint_table`.
struct breakpoint_row {
  std::vector<breakpoint> steps{};
  std::int64_t run = 0;  ///< run_need(s, t)

  /// D(s, t, m); infinite before the first breakpoint. O(log breakpoints) time.
  [[nodiscard]] double at(std::int64_t m) const noexcept {
    const auto after = std::upper_bound(steps.begin(), steps.end(), m,
                                        [](std::int64_t memory, const breakpoint& b) { return memory < b.memory; });
    return after == steps.begin() ? std::numeric_limits<double>::infinity() : std::prev(after)->excess;
  }
};

/// The table of the dynamic program without slots: the recurrence of `slot_table`, with memory in any unit, for
/// instance bytes. Each D(s, t, ·) is a falling step function. The table holds it as the list of its breakpoints, the
/// Pareto-optimal pairs of memory and time, up to the memory `room`.
///
/// To keep s whole moves the list of (s + 1, t); to keep the input of j adds two step functions. Their minimum is
/// merged list by list, over the range of memory in which a lower bound of the candidate is below the best so far. A
/// list can grow exponentially with t − s, but it holds only what `bound` and `room` allow, which is little if the
/// bound is tight. `fill` counts the breakpoints that it visits, and gives up at a limit of them.
class breakpoint_table : public row_table<breakpoint_row> {
 public:
  /// `c` in any unit. Keeps references to `c` and `bound`.
  breakpoint_table(const sized_chain& c, std::int64_t room, const excess_bound& bound)
      : row_table(c, bound), room_(room) {}

  /// Breakpoints visited so far, about 4 ns each.
  [[nodiscard]] std::uint64_t visits() const noexcept { return work_.load(std::memory_order_relaxed); }

  /// Fills the table as `slot_table::fill` does. Each thread also polls `clock` after a million breakpoints of a row.
  /// `too_large`: the table would take more than `max_bytes`, or more than `max_visits` breakpoints were visited; the
  /// latter is the same for any number of threads.
  fill_outcome fill(run_clock& clock, std::int64_t max_bytes, std::uint64_t max_visits);

  /// D(1, n, ·): memory ascending, excess falling. Empty: no schedule within the bound. Precondition of this and the
  /// rest: filled.
  [[nodiscard]] std::span<const breakpoint> frontier() const { return whole().steps; }
  /// C(1, n, ·) at a breakpoint of the frontier.
  [[nodiscard]] double cost(const breakpoint& b) const { return b.excess + bound_->least[n_]; }

 private:
  friend class breakpoints::row_filler;

  std::int64_t room_;
  std::atomic<std::uint64_t> work_{0};
};

namespace breakpoints {

/// The breakpoints of a falling step function, memory ascending.
using list = std::vector<breakpoint>;

/// Fills rows of a table on one thread.
class row_filler {
 public:
  explicit row_filler(breakpoint_table& table) : table_(&table), column_(table.n_ + std::size_t{2}) {}

  /// Breakpoints visited by the last row.
  [[nodiscard]] std::uint64_t work() const noexcept { return work_; }
  /// True if the clock said to stop during the last row, which is not complete then.
  [[nodiscard]] bool stopped() const noexcept { return stopped_; }

  /// Fills row (s, t), and returns how many breakpoints it has. Beyond `max_visits` visited breakpoints the row is left
  /// incomplete: the fill ends.
  std::size_t fill(std::uint32_t s, std::uint32_t t, std::uint64_t max_visits, const run_clock& clock) {
    const sized_chain& c = *table_->c_;
    breakpoint_row& out = table_->rows_[table_->layout_.place(s, t)];
    frame f(*table_, s, t);
    f.end = table_->room_ + 1;
    out.run = f.run;

    work_ = 0;
    stopped_ = false;
    best_.clear();
    offer_whole(f);
    if (s < t && t < table_->n_ && c.stages[t].idle)  // no forward of t
      offer_moved(c.stages[t].backward - c.least_time(t), f.before[t - 1 - s].steps, c.stages[t].outputs,
                  c.stages[s - 1].transient + c.stages[t].idle_need, f.end, f.max_excess);
    offer_inputs(f, max_visits, clock);
    out.steps.assign(best_.begin(), best_.end());
    column_[s] = &out;
    return out.steps.size();
  }

 private:
  struct frame : breakpoint_table::row_frame {
    using row_frame::row_frame;
    std::int64_t end = 0;  ///< the memory from which on nothing is stored
  };

  /// Keeps s whole by one of its options.
  void offer_whole(const frame& f) {
    const sized_chain& c = *table_->c_;
    const sized_stage& stage = c.stages[f.s];
    const double spent = c.least_time(f.s);
    const std::int64_t behind = f.s < f.t ? table_->bound_->made_behind(f.s + 1, f.t) : 0;
    for (std::uint32_t o = stage.first_option; o < stage.last_option; ++o) {
      const keep_option& way = c.options[o];
      const std::int64_t from = std::max(c.keep_need(way, f.s, f.t, behind), f.base);
      if (from >= f.end) continue;
      if (f.s == f.t) {
        offered_.assign(1, {from, way.last_time - spent});
        if (offered_[0].excess <= f.max_excess) merge();
      } else {
        offer_moved(way.time - spent, column_[f.s + 1]->steps, c.saved(o, f.t), from, f.end, f.max_excess);
      }
    }
  }

  /// Keeps the input of j alone, for each j.
  void offer_inputs(const frame& f, std::uint64_t max_visits, const run_clock& clock) {
    constexpr std::uint64_t stride = 1'000'000;
    const sized_chain& c = *table_->c_;
    const excess_bound& bound = *table_->bound_;
    std::uint64_t polled = 0;
    for (std::uint32_t j = f.s + 1; j <= f.last_before + 1; ++j) {
      const double add = bound.advanced[j - 1] - bound.advanced[f.s - 1];
      if (add > f.max_excess) break;
      const list& a = column_[j]->steps;
      const list& b = f.before[j - 1 - f.s].steps;
      if (a.empty() || b.empty()) continue;
      const std::int64_t kept = c.h(f.s, j - 1), made = bound.made_behind(j, f.t);
      const std::int64_t need = c.strict() ? f.base : f.beside + f.before[j - 1 - f.s].run;
      const std::int64_t from = std::max({need, kept + a.front().memory, made + b.front().memory});
      const double lower = (add + a.back().excess) + b.back().excess;
      if (from >= f.end || lower > f.max_excess) continue;
      // The memory from which on the best is not above the bound.
      const auto settled =
          std::partition_point(best_.begin(), best_.end(), [&](const breakpoint& k) { return k.excess > lower; });
      const std::int64_t until = settled == best_.end() ? f.end : settled->memory;
      if (from >= until) continue;
      offer_sum(add, a, kept, b, made, from, until, f.max_excess);
      if (work_ > max_visits) return;
      if (work_ - polled > stride) {
        polled = work_;
        stopped_ = clock.should_stop();
        if (stopped_) return;
      }
    }
  }

  /// Offers add + D(·), moved by `shift`, from `from` on and below `until`.
  void offer_moved(double add, const list& steps, std::int64_t shift, std::int64_t from, std::int64_t until,
                   double max_excess) {
    offered_.clear();
    for (const breakpoint& b : steps) {
      const std::int64_t memory = std::max(b.memory + shift, from);
      if (memory >= until) break;
      const double excess = add + b.excess;
      if (excess > max_excess) continue;
      if (!offered_.empty() && offered_.back().memory == memory)
        offered_.back().excess = excess;
      else
        offered_.push_back({memory, excess});
    }
    work_ += steps.size();
    merge();
  }

  /// Offers (add + A(m − shift_a)) + B(m − shift_b), from `from` on and below `until`. Precondition: both are finite
  /// at `from`.
  void offer_sum(double add, const list& a, std::int64_t shift_a, const list& b, std::int64_t shift_b,
                 std::int64_t from, std::int64_t until, double max_excess) {
    offered_.clear();
    std::size_t i = 0, k = 0;  // breakpoints of a, of b up to `memory`
    while (i < a.size() && a[i].memory + shift_a <= from) ++i;
    while (k < b.size() && b[k].memory + shift_b <= from) ++k;
    std::int64_t memory = from;
    for (;;) {
      const double excess = (add + a[i - 1].excess) + b[k - 1].excess;
      if (excess <= max_excess) offered_.push_back({memory, excess});
      const std::int64_t next_a = i < a.size() ? a[i].memory + shift_a : until;
      const std::int64_t next_b = k < b.size() ? b[k].memory + shift_b : until;
      memory = std::min(next_a, next_b);
      if (memory >= until) break;
      i += next_a == memory;
      k += next_b == memory;
    }
    work_ += i + k;
    merge();
  }

  /// best_ = the minimum of best_ and offered_.
  void merge() {
    work_ += offered_.size();
    std::size_t k = 0, b = 0;  // the first breakpoint of offered_ below best_, and of best_ behind it
    for (; k < offered_.size(); ++k) {
      while (b < best_.size() && best_[b].memory <= offered_[k].memory) ++b;
      if (b == 0 || offered_[k].excess < best_[b - 1].excess) break;
    }
    work_ += b;
    if (k == offered_.size()) return;
    list& out = merged_;
    out.clear();
    while (b > 0 && best_[b - 1].memory == offered_[k].memory) --b;  // those of best_ at the same memory are replaced
    out.insert(out.end(), best_.begin(), best_.begin() + static_cast<std::ptrdiff_t>(b));
    double least = b == 0 ? std::numeric_limits<double>::infinity() : out.back().excess;
    const auto add = [&](const breakpoint& next) {
      if (next.excess >= least) return;
      least = next.excess;
      if (!out.empty() && out.back().memory == next.memory)
        out.back().excess = least;
      else
        out.push_back(next);
    };
    while (k < offered_.size() && b < best_.size())
      add(offered_[k].memory <= best_[b].memory ? offered_[k++] : best_[b++]);
    for (; k < offered_.size(); ++k) add(offered_[k]);
    for (; b < best_.size(); ++b) add(best_[b]);
    work_ += out.size();
    best_.swap(out);
  }

  breakpoint_table* table_;
  list best_{}, offered_{}, merged_{};
  std::vector<const breakpoint_row*> column_;  // [j]: row (j, t)
  std::uint64_t work_ = 0;
  bool stopped_ = false;
};

}  // namespace breakpoints

inline fill_outcome breakpoint_table::fill(run_clock& clock, std::int64_t max_bytes, std::uint64_t max_visits) {
  const double cells = static_cast<double>(rows()) * n_;
  return fill_rows(clock, max_bytes, cells < 2e5, breakpoints::row_filler(*this),
                   [&](breakpoints::row_filler& own, std::uint32_t s, std::uint32_t t) {
                     const std::int64_t bytes = add_bytes(own.fill(s, t, max_visits, clock) * sizeof(breakpoint));
                     const std::uint64_t visited = work_.fetch_add(own.work(), std::memory_order_relaxed) + own.work();
                     if (own.stopped()) return fill_outcome::stopped;
                     return bytes > max_bytes || visited > max_visits ? fill_outcome::too_large : fill_outcome::filled;
                   });
}

}  // namespace REMAT_NAMESPACE::detail
