// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Binomial checkpointing of equal steps \cite griewank2000revolve: the closed form, and its moves one by one. Solvers
/// of chains and `remat/adjoint.hpp` share it.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail::binomial {

/// The least number of steps run forward that reverse l steps with c states kept beside the first: r·l − β(c + 2, r −
/// 1), where β(c, r) is the binomial coefficient (c + r over c), and r is the least number with β(c + 1, r) ≥ l. The
/// run that each step needs for its own reversal is not counted. O(r) time. Precondition: l < 2³¹.
[[nodiscard]] constexpr std::uint64_t advances(std::uint64_t l, std::uint64_t c) noexcept {
  if (l <= 1) return 0;
  if (c == 0) return l * (l - 1) / 2;
  if (c + 1 >= l) return l - 1;
  std::uint64_t r = 0, beta = 1, sum = 0;  // β(c + 1, r); β(c + 2, r − 1) = β(c + 1, 0) + … + β(c + 1, r − 1)
  while (beta < l) {
    sum += beta;
    ++r;
    beta = beta * (c + 1 + r) / r;  // the product is below l · 2l
  }
  return r * l - sum;
}

/// The repetition number: the least r with β(s, r) ≥ l. O(r) time. Preconditions: l < 2³¹, s > 0.
[[nodiscard]] constexpr std::uint64_t repetitions(std::uint64_t l, std::uint64_t s) noexcept {
  if (l <= 1) return 0;
  if (s + 1 >= l) return 1;
  std::uint64_t r = 0;
  for (std::uint64_t beta = 1; beta < l; beta = beta * (s + r) / r) ++r;
  return r;
}

/// The least of the best numbers of steps before the next kept state. The cost is convex in that number, and its slopes
/// are the repetition numbers of both parts, so it is the least over q ≥ 1 of max(1, β(c + 1, q − 1), l − β(c, q + 1)).
/// O(r) time. Precondition: 1 < l < 2³¹, c > 0.
[[nodiscard]] constexpr std::uint64_t first_advance(std::uint64_t l, std::uint64_t c) noexcept {
  // Let ρ(l, c) be the least r with β(c + 1, r) ≥ l. One more step before the kept state costs 1 + ρ(j + 1, c) − ρ(l −
  // j, c − 1) more. That is not negative if some q has j ≥ β(c + 1, q − 1) and j ≥ l − β(c, q + 1).
  if (c + 1 >= l) return 1;
  std::uint64_t least = l - 1;
  std::uint64_t low = 1, high = c + 1;  // β(c + 1, q − 1) and β(c, q); below l · 2l
  for (std::uint64_t q = 1; low < least; ++q) {
    high = high * (c + q + 1) / (q + 1);  // β(c, q + 1)
    least = std::min(least, std::max(low, l - std::min(l, high)));
    if (high >= l) break;  // greater q only raise the other term
    low = low * (c + 1 + q) / q;
  }
  return least;
}

/// Steps that are still to be reversed, from `first` to before `last`, with `spare` states that may be kept beside the
/// one before step `first`.
struct range {
  std::uint64_t first = 0, last = 0;
  std::uint64_t spare = 0;
};

/// A move: an advance from the state before step `from` to that before `to`, or the reversal of step `from`. Of an
/// advance, the state before `from` must be kept: later moves begin there. Of the reversal of a whole range, it is not
/// needed again.
template <class Range>
struct move {
  enum { end, advance, turn } kind = end;
  std::uint64_t from = 0, to = 0;
  bool whole = false;       ///< the move reverses the last step of its range
  Range before{}, after{};  ///< the range that begins at `from`, before and after the move
};

/// The moves that reverse ranges of steps, the last range first, made one by one: memory for one range for each kept
/// state. `Rule` says what is kept where: `rule.splits(range)` is false if no further state can be kept, and
/// `rule.split(range)` shortens the range to the steps before the next kept state, and returns the range of those after
/// it.
template <class Range>
class walker {
 public:
  /// Reverses `r` before all that was added earlier.
  void add(const Range& r) { stack_.push_back(r); }

  /// The next move. The rule is asked for ranges of two steps or more alone.
  template <class Rule>
  move<Range> next(const Rule& rule) {
    if (stack_.empty()) return {};
    Range& now = stack_.back();
    const Range before = now;
    const std::uint64_t length = now.last - now.first;
    if (length == 1) {
      stack_.pop_back();
      return {move<Range>::turn, before.first, before.last, true, before, before};
    }
    if (has_run_) {
      has_run_ = false;
      --now.last;
      return {move<Range>::turn, before.last - 1, before.last, false, before, before};
    }
    if (!rule.splits(before)) {
      has_run_ = true;
      return {move<Range>::advance, before.first, before.last - 1, false, before, now = rule.keep(before)};
    }
    const Range right = rule.split(now);
    const Range after = now;
    stack_.push_back(right);
    return {move<Range>::advance, before.first, right.first, false, before, after};
  }

 private:
  std::vector<Range> stack_;
  bool has_run_ = false;  // the last range keeps no further states, and was run to its last step
};

/// The rule for equal steps.
struct equal_steps {
  static bool splits(const range& r) noexcept { return r.spare > 0; }
  static range keep(const range& r) noexcept { return r; }
  static range split(range& r) noexcept {
    const std::uint64_t middle = r.first + first_advance(r.last - r.first, r.spare);
    const range right{middle, r.last, r.spare - 1};
    r.last = middle;
    return right;
  }
};

}  // namespace REMAT_NAMESPACE::detail::binomial
