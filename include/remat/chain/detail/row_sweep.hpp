// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "remat/chain/detail/sized_chain.hpp"
#include "remat/core/run.hpp"

namespace remat::detail {

/// How the filling of a table ended.
enum class fill_outcome : std::uint8_t { filled, stopped, too_large };

namespace tables {

/// The pairs (s, t), 1 ≤ s ≤ t ≤ n, for which a table has a row: those whose D may be of use under a bound, and all
/// pairs (s, n). For each s they are a range of t from s on, and n. O(n) time and memory.
class row_layout {
 public:
  explicit row_layout(const excess_bound& bound);

  /// n.
  [[nodiscard]] std::uint32_t length() const noexcept { return n_; }
  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
  /// The least s with a row (s, t); t + 1 if there is none.
  [[nodiscard]] std::uint32_t lowest(std::uint32_t t) const noexcept { return lowest_[t]; }
  [[nodiscard]] bool stored(std::uint32_t s, std::uint32_t t) const noexcept { return t == n_ || s >= lowest_[t]; }
  /// The index of row (s, t). The rows of one s are contiguous, by t. Precondition: stored(s, t).
  [[nodiscard]] std::size_t place(std::uint32_t s, std::uint32_t t) const noexcept {
    return t == n_ ? start_[s + 1] - 1 : start_[s] + (t - s);
  }
  /// The index of row (s, s), or of the first row of s if there is no such row.
  [[nodiscard]] std::size_t begin(std::uint32_t s) const noexcept { return start_[s]; }
  /// The last t' < t with a row (s, t'); s − 1 if there is none. Precondition: s < t, stored(s, t).
  [[nodiscard]] std::uint32_t before(std::uint32_t s, std::uint32_t t) const noexcept {
    return t < n_ ? t - 1 : static_cast<std::uint32_t>(start_[s + 1] - start_[s] + s - 2);
  }

 private:
  std::uint32_t n_;
  std::size_t rows_ = 0;
  std::vector<std::size_t> start_;
  std::vector<std::uint32_t> lowest_;
};

/// Makes `rows` hold `count` empty rows, and polls every 2^16 rows. False if `clock` says to stop.
template <class Row>
[[nodiscard]] bool make_rows(std::vector<Row>& rows, std::size_t count, const run_clock& clock) {
  constexpr std::size_t stride = std::size_t{1} << 16;
  rows.clear();
  rows.reserve(count);
  while (rows.size() < count) {
    if (clock.should_stop()) return false;
    rows.resize(std::min(count, rows.size() + stride));
  }
  return true;
}

/// Fills row (s, t) on the thread of that number; the caller's thread is 0.
using fill_function = std::function<fill_outcome(unsigned thread, std::uint32_t s, std::uint32_t t)>;
/// Asked on the caller's thread: true to stop. `filled` is 1 after a row of that thread, and 0 while it waits.
using sweep_poll = std::function<bool(std::uint64_t filled)>;

/// Polls the clock of a sweep, and reports its progress: a `sweep_poll`. The caller's thread counts for all, since each
/// of them fills about as many rows.
class fill_progress {
 public:
  /// For a sweep of `rows` rows on `threads` threads. Keeps a reference to `clock`.
  fill_progress(run_clock& clock, unsigned threads, std::uint64_t rows) noexcept
      : clock_(&clock), threads_(threads), rows_(rows) {}

  /// Counts the rows filled, and returns true if the clock says to stop.
  bool operator()(std::uint64_t filled) {
    if (clock_->should_stop()) return true;
    filled_ += filled;
    clock_->report({.stage = "table", .done = std::min(filled_ * threads_, rows_), .total = rows_});
    return false;
  }

 private:
  run_clock* clock_;
  unsigned threads_;
  std::uint64_t rows_;
  std::uint64_t filled_ = 0;
};

/// Calls `fill` once for every row of `layout`, on `threads` threads, the caller's among them. Row (s, t) is filled
/// when all rows (s, t') and (s', t) with t' < t and s' > s have been filled. Each thread takes one column t at a time.
///
/// The first outcome other than `filled` ends the sweep, and is returned. `poll` is asked after each row of the
/// caller's thread, and every 200 µs while that thread waits for the others at the end. An exception of `fill` or
/// `poll` leaves the function when all threads have ended.
fill_outcome sweep_rows(const row_layout& layout, unsigned threads, const fill_function& fill, const sweep_poll& poll);

}  // namespace tables

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/chain/impl/row_sweep.hpp"
#endif
