// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/row_sweep.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/core/run.hpp"

namespace remat::detail {

namespace slots {
class row_filler;
}

/// The table of the dynamic program with memory counted in slots \cite beaumont2019rotor.
///
///   C(s, t, m) is the least time to run the stages s … t forward and backward with m slots. The gradient of x_t is
///   within m; the input of s (except its transient part) and all that was stored before are not. C is the least of
///   - keep s whole by one of its options o: f_o + b_o + C(s + 1, t, m − saved_o(t)), with C(t + 1, t, ·) = 0, if
///     m ≥ gradient_t + forward_need_o and m − outputs_{s+1…t} ≥ backward_need_o;
///   - keep the input of j alone, for a j with s < j ≤ t:
///     f_s + … + f_{j−1} + C(j, t, m − h(s, j − 1)) + C(s, j − 1, m − outputs_{j…t}),
///     if m ≥ gradient_t + transient_{s−1} + x(s, i − 1) + fast_need_i for all i in [s, j); in the published recurrence
///     and on graphs for all i in [s, t), and the first choice must meet that too (`sized_chain::strict`);
///   - run no forward of t, if its backward reads nothing that a forward makes, and s < t < n:
///     b_t + C(s, t − 1, m − outputs_t), if m ≥ transient_{s−1} + idle_need_t. The Rotor model has no such stage.
///
/// The table stores D (`excess_bound`), and of a row (s, t) the values between its first finite slot and the slot from
/// which on it is constant. D falls with m, so a j can win only in slots in which the best value so far exceeds a lower
/// bound of the j: f_s + … + f_{j−1} and the last values of both rows. That range of slots shrinks as j grows. The
/// innermost loops run along m, which is contiguous, with the widest vectors of the machine, chosen at run time. One
/// thread computes each row, in one order of operations, so the values are the same for any number of threads and any
/// vectors. Choices are not stored: `steps` finds them again from D. O(n³ · slots) time and O(n² · slots) memory at
/// worst, often far less.
class slot_table {
 public:
  /// `c` in slots; its sizes are at most slots + 1. The table finds schedules of at most `bound.limit` more time than
  /// the least. Keeps references to `c` and `bound`.
  slot_table(const sized_chain& c, std::uint32_t slots, const excess_bound& bound)
      : c_(&c), bound_(&bound), slots_(slots), n_(c.length), layout_(bound) {}

  /// Uses vectors of at most `width` doubles: for tests and measurements.
  void limit_lanes(std::size_t width) noexcept { max_lanes_ = width; }

  /// Rows (s, t) to fill.
  [[nodiscard]] std::uint64_t rows() const noexcept { return layout_.rows(); }
  /// Bytes of the table so far.
  [[nodiscard]] std::int64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

  /// Fills the table on up to as many threads as `clock` allows, the caller's among them. That thread polls `clock`
  /// after each of its rows, and reports progress there. `too_large`: the table would take more than `max_bytes`.
  fill_outcome fill(run_clock& clock, std::int64_t max_bytes);

  /// C(1, n, m); infinite if there is no schedule within the bound. Precondition of this and the rest: filled.
  [[nodiscard]] double cost(std::uint32_t m) const { return excess(m) + bound_->least[n_]; }
  /// D(1, n, m).
  [[nodiscard]] double excess(std::uint32_t m) const { return value(whole(), m); }
  /// The least m with a finite C(1, n, m); more than `slots` if there is none.
  [[nodiscard]] std::uint32_t first() const { return whole().first; }
  /// The m from which on C(1, n, m) is constant.
  [[nodiscard]] std::uint32_t last() const { return whole().last; }

  /// The steps behind C(1, n, m). O(steps · (stages + options of a stage)) time. Precondition: C(1, n, m) is finite.
  [[nodiscard]] std::vector<chain_step> steps(std::uint32_t m) const;

 private:
  friend class slots::row_filler;

  static constexpr double infinite = std::numeric_limits<double>::infinity();
  static constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max() / 4;
  static constexpr std::size_t widest = 8;           // doubles of the widest vector
  static constexpr std::size_t margin = widest - 1;  // doubles behind a row that repeat its last value

  /// D(s, t, ·): infinite before `first`, values[m − first] up to `last`, `tail` from there on.
  struct row {
    const double* values = nullptr;
    double tail = infinite;
    std::uint32_t first = never, last = never;
    std::uint32_t run = 0;  ///< run_need(s, t)
  };

  /// The values of the rows (s, ·) of one s, one behind another, in the order in which they are read.
  struct pool {
    std::vector<std::unique_ptr<double[]>> chunks{};
    std::size_t used = 0, size = 0, total = 0;

    double* take(std::size_t count);
  };

  [[nodiscard]] const row& whole() const { return rows_[layout_.place(1, n_)]; }
  [[nodiscard]] static double value(const row& r, std::uint32_t m) noexcept {
    return m < r.first ? infinite : m < r.last ? r.values[m - r.first] : r.tail;
  }

  const sized_chain* c_;
  const excess_bound* bound_;
  std::uint32_t slots_;
  std::uint32_t n_;
  row_layout layout_;
  std::vector<row> rows_{};
  std::vector<pool> pools_{};
  std::size_t max_lanes_ = widest;
  std::atomic<std::int64_t> bytes_{0};
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/chain/impl/slot_table.hpp"
#endif
