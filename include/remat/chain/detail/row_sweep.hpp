// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "remat/chain/detail/sized_chain.hpp"
#include "remat/core/detail/team.hpp"

namespace REMAT_NAMESPACE::detail {

/// How the filling of a table ended.
enum class fill_outcome : std::uint8_t { filled, stopped, too_large };

/// The pairs (s, t), 1 ≤ s ≤ t ≤ n, for which a table has a row: those that a schedule within the bound may have as a
/// part, and all pairs (s, n). For each s they are a range of t from s on, and n. O(n) time and memory.
class row_layout {
 public:
  explicit row_layout(const excess_bound& bound) : n_(bound.length()), start_(n_ + 2), lowest_(n_ + 1, 1) {
    std::uint32_t last = 1;  // the first t beyond the bound, or n
    for (std::uint32_t s = 1; s <= n_; ++s) {
      start_[s] = rows_;
      last = std::max(last, s);
      while (last < n_ && bound.max_excess(s, last) >= 0) ++last;
      rows_ += last - s + 1;  // the place of `last` is that of n
    }
    start_[n_ + 1] = rows_;
    std::uint32_t s = 1;
    for (std::uint32_t t = 1; t < n_; ++t) {
      while (s <= t && bound.max_excess(s, t) < 0) ++s;
      lowest_[t] = s;
    }
  }

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

/// Fills row (s, t) on the thread of that number; the caller's thread is 0.
using row_fill = std::function<fill_outcome(unsigned thread, std::uint32_t s, std::uint32_t t)>;
/// Asked on the caller's thread: true to stop. `filled` is 1 after a row of that thread, and 0 while it waits.
using sweep_poll = std::function<bool(std::uint64_t filled)>;

/// A sweep on several threads.
class parallel_sweep {
 public:
  parallel_sweep(const row_layout& layout, unsigned threads, const row_fill& fill, const sweep_poll& poll)
      : layout_(layout), fill_(fill), poll_(poll), done_(layout.length() + std::size_t{1}), threads_(threads) {
    for (std::uint32_t t = 1; t <= layout.length(); ++t) done_[t].store(t + 1, std::memory_order_relaxed);
  }

  fill_outcome run() {
    run_team(threads_, [this](std::size_t k) {
      try {
        work(static_cast<unsigned>(k));
      } catch (...) {
        end(fill_outcome::stopped);
        at_work_.fetch_sub(k == 0 ? 0 : 1, std::memory_order_relaxed);
        throw;
      }
    });
    return ended_.load();
  }

 private:
  [[nodiscard]] bool has_ended() const { return ended_.load(std::memory_order_relaxed) != fill_outcome::filled; }
  void end(fill_outcome why) {
    fill_outcome none = fill_outcome::filled;
    ended_.compare_exchange_strong(none, why);
  }

  /// Waits until row (s, t) is filled. False if the sweep has ended.
  [[nodiscard]] bool wait_for(std::uint32_t s, std::uint32_t t) const {
    constexpr int spins = 2000;
    for (int k = 0; done_[t].load(std::memory_order_acquire) > s; ++k) {
      if (has_ended()) return false;
      if (k >= spins) std::this_thread::yield();
    }
    return true;
  }

  void fill_column(unsigned thread, std::uint32_t t) {
    for (std::uint32_t s = t; s >= layout_.lowest(t); --s) {
      // Row (s, t − 1) has waited for (s, t − 2), and so on.
      const std::uint32_t before = s < t ? layout_.before(s, t) : 0;
      if (has_ended()) return;
      if (before >= s && !wait_for(s, before)) return;
      if (const fill_outcome why = fill_(thread, s, t); why != fill_outcome::filled) return end(why);
      done_[t].store(s, std::memory_order_release);
      if (thread == 0 && poll_(1)) return end(fill_outcome::stopped);
    }
  }

  void work(unsigned thread) {
    if (thread == 0)
      fill_column(0, 1);  // the first column is the caller's
    else
      at_work_.fetch_add(1, std::memory_order_relaxed);  // seen by those who take a later column
    for (std::uint32_t t; !has_ended() && (t = next_.fetch_add(1, std::memory_order_acq_rel)) <= layout_.length();)
      fill_column(thread, t);
    if (thread != 0) {
      at_work_.fetch_sub(1, std::memory_order_relaxed);
      return;
    }
    constexpr std::chrono::microseconds nap{200};
    while (at_work_.load(std::memory_order_relaxed) > 0) {
      if (poll_(0)) return end(fill_outcome::stopped);
      std::this_thread::sleep_for(nap);
    }
  }

  const row_layout& layout_;
  const row_fill& fill_;
  const sweep_poll& poll_;
  std::vector<std::atomic<std::uint32_t>> done_;  // [t]: the least s whose row (s, t) is filled
  std::atomic<std::uint32_t> next_{2};            // the next column
  std::atomic<unsigned> at_work_{0};              // threads beside the caller's
  std::atomic<fill_outcome> ended_{fill_outcome::filled};
  unsigned threads_;
};

/// Calls `fill` once for every row of `layout`, on `threads` threads, the caller's among them. Row (s, t) is filled
/// when all rows (s, t') and (s', t) with t' < t and s' > s have been filled. Each thread takes one column t at a time.
///
/// The first outcome other than `filled` ends the sweep, and is returned. `poll` is asked after each row of the
/// caller's thread, and every 200 µs while that thread waits for the others at the end. An exception of `fill` or
/// `poll` leaves the function when all threads have ended.
inline fill_outcome sweep_rows(const row_layout& layout, unsigned threads, const row_fill& fill,
                               const sweep_poll& poll) {
  if (threads > 1) return parallel_sweep(layout, threads, fill, poll).run();
  for (std::uint32_t t = 1; t <= layout.length(); ++t)
    for (std::uint32_t s = t; s >= layout.lowest(t); --s) {
      if (const fill_outcome why = fill(0U, s, t); why != fill_outcome::filled) return why;
      if (poll(1)) return fill_outcome::stopped;
    }
  return fill_outcome::filled;
}

}  // namespace REMAT_NAMESPACE::detail
