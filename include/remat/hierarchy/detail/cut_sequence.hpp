// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail::partitioning {

/// A run of items in which each equals the one `period` places before it.
struct repeat {
  std::size_t begin = 0;   ///< its first item
  std::size_t end = 0;     ///< one past its last item
  std::size_t period = 0;  ///< 0: there is none
};

/// The repeat of most items in [begin, end) of `kinds`, with a period of `least_period` to `max_period`; of equal ones
/// that of the shortest period, then the first. It has at least two periods. O((end - begin) · max_period) time.
[[nodiscard]] inline repeat longest_repeat(std::span<const std::uint64_t> kinds, std::size_t begin, std::size_t end,
                                           std::size_t least_period, std::size_t max_period) {
  repeat best;
  for (std::size_t p = std::max<std::size_t>(1, least_period); p <= std::min(max_period, (end - begin) / 2); ++p)
    for (std::size_t i = begin, run = 0; i + p < end; ++i) {
      run = kinds[i] == kinds[i + p] ? run + 1 : 0;
      if (run >= p && run + p > best.end - best.begin) best = {i + 1 - run, i + 1 + p, p};
    }
  return best;
}

/// The place in the period at which `r` should be cut: the fewest bytes cross there, on average over its whole periods.
/// `crossing[i]` are the bytes that cross between items i - 1 and i. O(end - begin) time.
[[nodiscard]] inline std::size_t cheapest_shift(const repeat& r, std::span<const std::int64_t> crossing) {
  std::size_t shift = 0;
  double fewest = std::numeric_limits<double>::infinity();
  for (std::size_t c = 0; c < r.period; ++c) {
    double bytes = 0;
    std::size_t times = 0;
    for (std::size_t i = r.begin + c; i + r.period <= r.end; i += r.period) {
      if (i == 0) continue;  // nothing stands before it
      bytes += static_cast<double>(crossing[i]);
      ++times;
    }
    if (times == 0 || bytes / static_cast<double>(times) >= fewest) continue;
    fewest = bytes / static_cast<double>(times);
    shift = c;
  }
  return shift;
}

/// A sequence of nodes that may be cut into stretches. Like nodes have the same kind.
///
/// It is divided once into runs that repeat themselves at least three times, with a period of at most 32 nodes, and the
/// rests between them. A run is cut into stretches of the same number of whole periods, up to one, or each period
/// alike. So like blocks become like stretches. A rest is cut into stretches of about equal size, each cut where the
/// fewest bytes cross within a quarter of a stretch around it.
class sequence_cutter {
 public:
  /// `weight`: operations of a node, at least 1. `crossing[i]`: bytes that node i - 1 hands to node i; [0] does not
  /// count. Each has one entry for each node; `crossing` may have more. O(32 · nodes) time.
  sequence_cutter(std::span<const std::uint64_t> kind, std::span<const std::uint32_t> weight,
                  std::span<const std::int64_t> crossing)
      : before_{0}, crossing_(crossing.begin(), crossing.end()) {
    constexpr std::size_t max_period = 32, least_times = 3;
    const std::size_t n = kind.size();
    for (const std::uint32_t w : weight) before_.push_back(before_.back() + w);
    // repeats[p - 1][i]: so many items from the i-th on equal the one p places behind them.
    std::vector<std::vector<std::uint32_t>> repeats(std::min(max_period, n / least_times));
    for (std::size_t p = 1; p <= repeats.size(); ++p) {
      repeats[p - 1].assign(n, 0);
      for (std::size_t i = n - p; i-- > 0;) repeats[p - 1][i] = kind[i] == kind[i + p] ? repeats[p - 1][i + 1] + 1 : 0;
    }
    std::size_t done = 0;
    const auto rest_until = [&](std::size_t end) {
      if (done < end) sections_.push_back({done, end, 0});
      done = end;
    };
    for (std::size_t i = 0; i < n;) {
      repeat run;
      for (std::size_t p = 1; p <= repeats.size(); ++p)
        if (const std::size_t length = repeats[p - 1][i] + p; length >= least_times * p && i + length > run.end)
          run = {i, i + length, p};
      if (run.period == 0) {
        ++i;
        continue;
      }
      run.begin += cheapest_shift(run, crossing);
      rest_until(run.begin);
      done = run.end - (run.end - run.begin) % run.period;
      sections_.push_back({run.begin, done, run.period});
      i = run.end;
    }
    rest_until(n);
  }

  /// The number of stretches when no stretch should have more than about `most` operations, which is at least 1.
  /// Stretches of rests may have half as many again; a node is in one stretch however large it is. O(runs) time.
  [[nodiscard]] std::size_t count(std::uint64_t most) const {
    std::size_t stretches = 0;
    for (const section& s : sections_) {
      const std::uint64_t one = s.period == 0 ? 0 : weight(s.begin, s.begin + s.period);
      const std::size_t periods = s.period == 0 ? 0 : (s.end - s.begin) / s.period;
      if (s.period == 0)
        stretches += stretches_of(s.begin, s.end, most);
      else if (one > most)
        stretches += periods * stretches_of(s.begin, s.begin + s.period, most);
      else
        stretches += static_cast<std::size_t>((periods + most / one - 1) / (most / one));
    }
    return stretches;
  }

  /// The stretches [begin, end) in turn. O(nodes) time. There are at most `count(most)`.
  [[nodiscard]] std::vector<std::pair<std::size_t, std::size_t>> cut(std::uint64_t most) const {
    std::vector<std::pair<std::size_t, std::size_t>> out;
    for (const section& s : sections_) {
      if (s.period == 0) {
        cut_rest(s.begin, s.end, most, out);
        continue;
      }
      const std::uint64_t one = weight(s.begin, s.begin + s.period);
      const std::size_t periods = (s.end - s.begin) / s.period;
      if (one > most) {
        std::vector<std::pair<std::size_t, std::size_t>> first;
        cut_rest(s.begin, s.begin + s.period, most, first);
        for (std::size_t k = 0; k < periods; ++k)
          for (const auto& [from, to] : first) out.emplace_back(from + k * s.period, to + k * s.period);
        continue;
      }
      const auto stretches = static_cast<std::size_t>((periods + most / one - 1) / (most / one));
      for (std::size_t k = 0; k < stretches; ++k)
        out.emplace_back(s.begin + periods * k / stretches * s.period,
                         s.begin + periods * (k + 1) / stretches * s.period);
    }
    return out;
  }

  /// The operations of all nodes.
  [[nodiscard]] std::uint64_t total() const { return before_.back(); }

 private:
  struct section {
    std::size_t begin = 0, end = 0;
    std::size_t period = 0;  // 0: a rest; the section is whole periods otherwise
  };

  [[nodiscard]] std::uint64_t weight(std::size_t begin, std::size_t end) const { return before_[end] - before_[begin]; }
  /// The number of stretches into which a rest is cut.
  [[nodiscard]] std::size_t stretches_of(std::size_t begin, std::size_t end, std::uint64_t most) const {
    return static_cast<std::size_t>(std::min<std::uint64_t>(end - begin, (weight(begin, end) + most - 1) / most));
  }

  void cut_rest(std::size_t begin, std::size_t end, std::uint64_t most,
                std::vector<std::pair<std::size_t, std::size_t>>& out) const {
    const std::size_t stretches = stretches_of(begin, end, most);
    const double even = static_cast<double>(weight(begin, end)) / static_cast<double>(stretches);
    std::size_t from = begin;
    for (std::size_t k = 1; k < stretches; ++k) {
      // The cut lies a quarter of a stretch at most from where the stretches would be equal, or as near as a node
      // allows.
      const double ideal = static_cast<double>(before_[begin]) + even * static_cast<double>(k);
      const auto distance = [&](std::size_t i) { return std::abs(static_cast<double>(before_[i]) - ideal); };
      std::size_t best = from + 1;
      for (std::size_t i = from + 1; i < end; ++i) {
        if (static_cast<double>(before_[i]) > ideal + even / 4 && i > best) break;
        const auto rank = [&](std::size_t at) {
          const bool near = distance(at) <= even / 4;
          return std::tuple(!near, near ? crossing_[at] : 0, distance(at));
        };
        if (rank(i) < rank(best)) best = i;
      }
      if (best >= end) break;
      out.emplace_back(from, best);
      from = best;
    }
    out.emplace_back(from, end);
  }

  std::vector<std::uint64_t> before_;   // operations of the nodes before the i-th
  std::vector<std::int64_t> crossing_;  // the bytes of `crossing`, as given
  std::vector<section> sections_;
};

}  // namespace REMAT_NAMESPACE::detail::partitioning
