// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/row_sweep.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/core/run.hpp"

namespace remat::detail {

namespace breakpoints {
class row_filler;
}

/// A step of a falling step function: from `memory` on, up to the next breakpoint, D is `excess`.
struct breakpoint {
  std::int64_t memory = 0;  ///< in the unit of the chain
  double excess = 0;        ///< the time beyond what every schedule spends
};

/// The table of the dynamic program without slots: the recurrence of `slot_table`, with memory in any unit, for
/// instance bytes. Each D(s, t, ·) is a falling step function. The table holds it as the list of its breakpoints, the
/// Pareto-optimal pairs of memory and time, up to the memory `room`.
///
/// To keep s whole moves the list of (s + 1, t); to keep the input of j adds two step functions. Their minimum is
/// merged list by list, and only where a bound of the candidate is below the best so far. A list can grow exponentially
/// with t − s, but it holds no more than `bound` and `room` leave, which is little if the bound is good. `fill` counts
/// the breakpoints that it visits, and gives up at a limit of them.
class breakpoint_table {
 public:
  /// `c` in any unit. Keeps references to `c` and `bound`.
  breakpoint_table(const sized_chain& c, std::int64_t room, const excess_bound& bound)
      : c_(&c), bound_(&bound), room_(room), n_(c.length), layout_(bound) {}

  /// Rows (s, t) to fill.
  [[nodiscard]] std::uint64_t rows() const noexcept { return layout_.rows(); }
  /// Bytes of the table so far.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }
  /// Breakpoints visited so far, about 4 ns each.
  [[nodiscard]] std::uint64_t visits() const noexcept { return work_.load(std::memory_order_relaxed); }

  /// Fills the table as `slot_table::fill` does. Each thread also polls `clock` after a million breakpoints of a row.
  /// `too_large`: the table would take more than `max_bytes`, or more than `max_visits` breakpoints were visited; the
  /// latter is the same for any number of threads.
  fill_outcome fill(run_clock& clock, std::int64_t max_bytes, std::uint64_t max_visits);

  /// D(1, n, ·): memory ascending, excess falling. Empty: no schedule within the bound. Precondition of this and the
  /// rest: filled.
  [[nodiscard]] std::span<const breakpoint> frontier() const { return rows_[layout_.place(1, n_)].steps; }
  /// C(1, n, ·) at a breakpoint of the frontier.
  [[nodiscard]] double cost(const breakpoint& b) const { return b.excess + bound_->least[n_]; }

  /// The steps behind C(1, n, m). O(steps · (stages + options of a stage)) look-ups of O(log breakpoints) time.
  /// Precondition: C(1, n, m) is finite.
  [[nodiscard]] std::vector<chain_step> steps(std::int64_t m) const;

 private:
  friend class detail::breakpoints::row_filler;

  static constexpr double infinite = std::numeric_limits<double>::infinity();

  struct row {
    std::vector<breakpoint> steps{};
    std::int64_t run = 0;  ///< run_need(s, t)
  };

  const sized_chain* c_;
  const excess_bound* bound_;
  std::int64_t room_;
  std::uint32_t n_;
  detail::tables::row_layout layout_;
  std::vector<row> rows_{};
  std::atomic<std::int64_t> bytes_{0};
  std::atomic<std::uint64_t> work_{0};
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/chain/impl/breakpoint_table.hpp"
#endif
