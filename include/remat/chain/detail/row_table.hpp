// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/row_sweep.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"

namespace REMAT_NAMESPACE::detail {

/// The rows of a table, `slot_table` or `breakpoint_table`: how they are filled, and how schedules are read from them.
///
/// A `Row` is D(s, t, ·) of one row: `at(m)` is its value at m ≥ 0, and `run` is run_need(s, t).
template <class Row>
class row_table {
 public:
  /// Rows (s, t) to fill.
  [[nodiscard]] std::uint64_t rows() const noexcept { return layout_.rows(); }
  /// Bytes of the rows before they are filled.
  [[nodiscard]] std::int64_t empty_bytes() const noexcept { return static_cast<std::int64_t>(rows() * sizeof(Row)); }
  /// Bytes of the table so far.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

  /// The steps behind C(1, n, m). The table holds no choices: each is found again by computing what the fill computed,
  /// with the same operations in the same order, until the values are equal. O(steps · (stages + options of a stage))
  /// look-ups of a value. Throws `internal_error` if no choice explains a value. Precondition: the table is filled, and
  /// C(1, n, m) is finite.
  [[nodiscard]] std::vector<chain_step> steps(std::int64_t m) const { return steps(1, n_, m); }
  /// The steps behind C(s, t, m), likewise.
  [[nodiscard]] std::vector<chain_step> steps(std::uint32_t s, std::uint32_t t, std::int64_t m) const {
    struct range {
      std::uint32_t s, t, option;
      std::int64_t m;
    };
    std::vector<chain_step> out;
    std::vector<range> left{{s, t, 0, m}};  // t = 0: the backward of s
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
        left.push_back({now.s, now.t - 1, 0, now.m - c_->stages[now.t].outputs});
        continue;
      }
      if (j == now.s) {
        const std::uint32_t option = o - c_->stages[now.s].first_option;
        out.push_back({chain_action::forward_all, now.s, option});
        left.push_back({now.s, 0, option, 0});
        if (now.s < now.t) left.push_back({now.s + 1, now.t, 0, now.m - c_->saved(o, now.t)});
        continue;
      }
      for (std::uint32_t i = now.s; i < j; ++i)
        out.push_back({i == now.s ? chain_action::forward_checkpoint : chain_action::forward_none, i, 0});
      left.push_back({now.s, j - 1, 0, now.m - bound_->made_behind(j, now.t)});
      left.push_back({j, now.t, 0, now.m - c_->h(now.s, j - 1)});
    }
    return out;
  }

  /// D(s, t, m): infinite if there is no such row, or m is negative. Precondition: the table is filled.
  [[nodiscard]] double at(std::uint32_t s, std::uint32_t t, std::int64_t m) const {
    if (m < 0 || !layout_.stored(s, t)) return std::numeric_limits<double>::infinity();
    return rows_[layout_.place(s, t)].at(static_cast<size>(m));
  }

 protected:
  using size = decltype(Row::run);

  /// The values of row (s, t) that all its choices need.
  struct row_frame {
    std::uint32_t s, t;
    std::uint32_t last_before = 0;  ///< the last t' < t with a row (s, t'); 0 if s = t
    const Row* before;              ///< [t' − s]: row (s, t')
    size run;                       ///< run_need(s, t)
    size beside = 0;                ///< memory beside the forwards that keep nothing
    size base = 0;                  ///< the least memory of all choices
    double max_excess;              ///< the largest D to store

    row_frame(const row_table& table, std::uint32_t from, std::uint32_t to)
        : s(from),
          t(to),
          before(table.rows_.data() + table.layout_.begin(s)),
          run(static_cast<size>(table.c_->stages[s].fast_need)),
          max_excess(table.bound_->max_excess(s, t)) {
      if (s == t) return;
      const sized_chain& c = *table.c_;
      last_before = table.layout_.before(s, t);
      const size until = last_before + 1 == t ? before[last_before - s].run : static_cast<size>(c.run_need(s, t - 1));
      run = std::max(until, static_cast<size>(c.x(s, t - 1) + c.stages[t].fast_need));
      beside = static_cast<size>(c.stages[t].gradient + c.stages[s - 1].transient);
      if (c.strict()) base = beside + until;
    }
  };

  row_table(const sized_chain& c, const excess_bound& bound) : c_(&c), bound_(&bound), n_(c.length), layout_(bound) {}

  [[nodiscard]] const Row& whole() const { return rows_[layout_.place(1, n_)]; }
  /// Counts the bytes of a row that has been filled. Returns the bytes of the table so far.
  std::int64_t add_bytes(std::size_t count) noexcept {
    const auto more = static_cast<std::int64_t>(count);
    return bytes_.fetch_add(more, std::memory_order_relaxed) + more;
  }

  /// Makes empty rows, and calls `fill_row(own, s, t)` for each, as `sweep_rows` does; `own` is a copy of `filler` for
  /// each thread. `few`: there is too little to do for several threads. `too_large`: the empty rows take more than
  /// `max_bytes`, or the answer of a row.
  template <class Filler, class FillRow>
  fill_outcome fill_rows(run_clock& clock, std::int64_t max_bytes, bool few, const Filler& filler,
                         const FillRow& fill_row) {
    bytes_ = empty_bytes();
    if (bytes() > max_bytes) return fill_outcome::too_large;
    if (!make_rows(clock)) return fill_outcome::stopped;
    const unsigned threads = std::clamp(clock.control().thread_count(), 1U, few ? 1 : n_ / 4 + 1);
    std::vector<Filler> fillers(threads, filler);
    std::uint64_t filled = 0;  // rows by the caller's thread; each thread fills about as many rows
    return sweep_rows(
        layout_, threads,
        [&](unsigned thread, std::uint32_t s, std::uint32_t t) { return fill_row(fillers[thread], s, t); },
        [&](std::uint64_t more) {
          if (clock.should_stop()) return true;
          filled += more;
          clock.report({.stage = "table", .done = std::min(filled * threads, rows()), .total = rows()});
          return false;
        });
  }

  const sized_chain* c_;
  const excess_bound* bound_;
  std::uint32_t n_;
  row_layout layout_;
  std::vector<Row> rows_{};

 private:
  /// Polls every 2^16 rows. Returns false if `clock` says to stop.
  [[nodiscard]] bool make_rows(const run_clock& clock) {
    constexpr std::size_t stride = std::size_t{1} << 16;
    rows_.clear();
    rows_.reserve(layout_.rows());
    while (rows_.size() < layout_.rows()) {
      if (clock.should_stop()) return false;
      rows_.resize(std::min(layout_.rows(), rows_.size() + stride));
    }
    return true;
  }

  /// The choice behind D(s, t, m): (0, 0) for no forward of t; (s, o) for s kept whole by option o; (j, 0) for the
  /// input of j kept alone.
  [[nodiscard]] std::pair<std::uint32_t, std::uint32_t> choice(std::uint32_t s, std::uint32_t t, std::int64_t m) const {
    const sized_chain& c = *c_;
    const row_frame f(*this, s, t);
    const double excess = at(s, t, m);
    if (s < t && t < n_ && c.stages[t].idle && m >= c.stages[s - 1].transient + c.stages[t].idle_need) {
      const double add = c.stages[t].backward - c.least_time(t);
      if (excess == add + at(s, t - 1, m - c.stages[t].outputs)) return {0, 0};
    }
    const std::int64_t behind = s < t ? bound_->made_behind(s + 1, t) : 0;
    const double spent = c.least_time(s);
    for (std::uint32_t o = c.stages[s].first_option; o < c.stages[s].last_option; ++o) {
      const keep_option& way = c.options[o];
      if (m < c.keep_need(way, s, t, behind) || m < f.base) continue;
      const double time = s == t ? way.last_time - spent : (way.time - spent) + at(s + 1, t, m - c.saved(o, t));
      if (excess == time) return {s, o};
    }
    std::int64_t run = 0;
    for (std::uint32_t j = s + 1; j <= t; ++j) {
      run = std::max(run, (j == s + 1 ? 0 : c.x(s, j - 2)) + c.stages[j - 1].fast_need);
      if (m < (c.strict() ? f.base : f.beside + run) || !layout_.stored(s, j - 1)) continue;
      const double add = bound_->advanced[j - 1] - bound_->advanced[s - 1];
      if (excess == (add + at(j, t, m - c.h(s, j - 1))) + at(s, j - 1, m - bound_->made_behind(j, t))) return {j, 0};
    }
    throw internal_error("no choice of the table of a chain explains its cost");
  }

  std::atomic<std::int64_t> bytes_{0};
};

}  // namespace REMAT_NAMESPACE::detail
