// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "remat/chain/sized_chain.hpp"

namespace remat::detail::persistent {

/// How the filling of a table ended.
enum class fill_outcome : std::uint8_t { filled, stopped, too_large };

/// The pairs (s, t), 1 ≤ s ≤ t ≤ n, that a table has rows for under a bound: those whose D may be of use. Of each s, a
/// range of t from s on, and n. O(n) time and memory.
class row_layout {
 public:
  explicit row_layout(const excess_bound& bound) : n_(bound.length()), start_(n_ + 2), lowest_(n_ + 1, 1) {
    std::uint32_t last = 1;  // the first t that is not of use, or n
    for (std::uint32_t s = 1; s <= n_; ++s) {
      start_[s] = rows_;
      last = std::max(last, s);
      while (last < n_ && bound.most(s, last) >= 0) ++last;
      rows_ += last - s + 1;  // the place of `last` is that of n
    }
    start_[n_ + 1] = rows_;
    std::uint32_t s = 1;
    for (std::uint32_t t = 1; t < n_; ++t) {
      while (s <= t && bound.most(s, t) < 0) ++s;
      lowest_[t] = s;
    }
  }

  /// n.
  [[nodiscard]] std::uint32_t length() const noexcept { return n_; }
  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }
  /// The first s with a row (s, t); t + 1 if there is none.
  [[nodiscard]] std::uint32_t lowest(std::uint32_t t) const noexcept { return lowest_[t]; }
  [[nodiscard]] bool stored(std::uint32_t s, std::uint32_t t) const noexcept { return t == n_ || s >= lowest_[t]; }
  /// Where (s, t) stands; those of one s stand one behind another. Precondition: stored(s, t).
  [[nodiscard]] std::size_t place(std::uint32_t s, std::uint32_t t) const noexcept {
    return t == n_ ? start_[s + 1] - 1 : start_[s] + (t - s);
  }
  /// Where (s, s) stands, or would.
  [[nodiscard]] std::size_t begin(std::uint32_t s) const noexcept { return start_[s]; }
  /// The last t' < t with a row (s, t'), s − 1 if there is none. Precondition: s < t, stored(s, t).
  [[nodiscard]] std::uint32_t before(std::uint32_t s, std::uint32_t t) const noexcept {
    return t < n_ ? t - 1 : static_cast<std::uint32_t>(start_[s + 1] - start_[s] + s - 2);
  }

 private:
  std::uint32_t n_;
  std::size_t rows_ = 0;
  std::vector<std::size_t> start_;
  std::vector<std::uint32_t> lowest_;
};

/// Calls `fill(thread, s, t)` once for every row of `layout`, on `threads` threads, the caller's among them: for (s, t)
/// when those of all (s, t') and (s', t) with t' < t and s' > s have returned. A thread takes one column t at a time.
/// What is not `filled` ends it all. `poll(1)`, on the caller's thread after each row that it has filled, and
/// `poll(0)` at times while it waits for the others at the end: true to stop. What any of them throws leaves
/// the function, when all threads have ended.
template <class Fill, class Poll>
fill_outcome sweep_rows(const row_layout& layout, unsigned threads, Fill&& fill, Poll&& poll) {
  const std::uint32_t n = layout.length();
  if (threads <= 1) {
    for (std::uint32_t t = 1; t <= n; ++t)
      for (std::uint32_t s = t; s >= layout.lowest(t); --s) {
        if (const fill_outcome why = fill(0U, s, t); why != fill_outcome::filled) return why;
        if (poll(1)) return fill_outcome::stopped;
      }
    return fill_outcome::filled;
  }

  std::vector<std::atomic<std::uint32_t>> done(n + 1);  // [t]: the lowest s that is filled
  for (std::uint32_t t = 1; t <= n; ++t) done[t].store(t + 1, std::memory_order_relaxed);
  std::atomic<std::uint32_t> next{2};
  std::atomic<unsigned> at_work{threads - 1};
  std::atomic<fill_outcome> ended{fill_outcome::filled};
  const auto end = [&](fill_outcome why) {
    fill_outcome none = fill_outcome::filled;
    ended.compare_exchange_strong(none, why);
  };
  const auto wait_for = [&](std::uint32_t s, std::uint32_t t) {
    constexpr int spins = 2000;
    for (int k = 0; done[t].load(std::memory_order_acquire) > s; ++k) {
      if (ended.load(std::memory_order_relaxed) != fill_outcome::filled) return false;
      if (k >= spins) std::this_thread::yield();
    }
    return true;
  };
  const auto columns = [&](unsigned thread) {
    for (bool begun = thread != 0;; begun = true) {  // the caller's thread takes the first
      const std::uint32_t t = begun ? next.fetch_add(1, std::memory_order_relaxed) : 1;
      if (t > n) return;
      for (std::uint32_t s = t; s >= layout.lowest(t); --s) {
        // (s, t − 1) has waited for (s, t − 2), and so on.
        const std::uint32_t before = s < t ? layout.before(s, t) : 0;
        if (ended.load(std::memory_order_relaxed) != fill_outcome::filled) return;
        if (before >= s && !wait_for(s, before)) return;
        if (const fill_outcome why = fill(thread, s, t); why != fill_outcome::filled) return end(why);
        done[t].store(s, std::memory_order_release);
        if (thread == 0 && poll(1)) return end(fill_outcome::stopped);
      }
    }
  };
  std::vector<std::exception_ptr> thrown(threads);
  const auto guarded = [&](unsigned thread) {
    try {
      columns(thread);
      constexpr std::chrono::microseconds nap{200};
      while (thread == 0 && at_work.load(std::memory_order_relaxed) > 0) {
        if (poll(0)) return end(fill_outcome::stopped);
        std::this_thread::sleep_for(nap);
      }
    } catch (...) {
      thrown[thread] = std::current_exception();
      end(fill_outcome::stopped);
    }
    if (thread != 0) at_work.fetch_sub(1, std::memory_order_relaxed);
  };
  {
    std::vector<std::jthread> others;
    try {
      for (unsigned k = 1; k < threads; ++k) others.emplace_back(guarded, k);
    } catch (...) {
      end(fill_outcome::stopped);
      throw;
    }
    guarded(0);
  }
  for (const std::exception_ptr& what : thrown)
    if (what) std::rethrow_exception(what);
  return ended.load();
}

}  // namespace remat::detail::persistent
