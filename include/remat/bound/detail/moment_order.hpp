// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "remat/problem/detail/listed_order.hpp"
#include "remat/problem/flat_graph.hpp"

namespace REMAT_NAMESPACE::detail {

/// Returns the bytes that the listed order holds while each needed operation runs, its workspace included; 0 for the
/// other operations.
[[nodiscard]] inline std::vector<std::int64_t> listed_memory(const flat_graph& g) {
  auto bytes = listed_order_sums<std::int64_t>(g, [&](std::uint32_t t) { return g.bytes[t]; });
  for (std::uint32_t o = 0; o < g.num_operations; ++o)
    if (g.needed[o]) bytes[o] += g.workspace[o];
  return bytes;
}

/// Returns the time of the producers of each tensor; infinite if one of them must not run twice.
[[nodiscard]] inline std::vector<double> producers_times(const flat_graph& g) {
  std::vector<double> times(g.num_tensors, 0);
  for (std::uint32_t t = 0; t < g.num_tensors; ++t)
    for (const std::uint32_t o : g.producers[t])
      times[t] += g.once[o] ? std::numeric_limits<double>::infinity() : g.time[o];
  return times;
}

/// Chooses the moments at which a bound is tried, in turn: of the first runs at which the listed order exceeds the
/// budget, first the one where it holds most bytes; then by turns the one of the highest estimate of the bound, and the
/// *tightest* one, where the listed order has to give up the largest part of the bytes beside the working set.
///
/// The caller estimates. An estimate is corrected by the errors at the nearest moments whose bounds are recorded.
class moment_order {
 public:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();  ///< stands for "no moment"

  /// A moment that has been tried.
  struct attempt {
    std::uint32_t moment;
    double value;  ///< the best bound at this moment
    double error;  ///< the error of the estimate
  };

  /// `listed`: the graph's `listed_memory`. It and the graph must outlive the object. `max_moments`: how many to try at
  /// most; 0: all.
  moment_order(const flat_graph& g, const std::vector<std::int64_t>& listed, std::int64_t budget,
               std::uint32_t max_moments)
      : graph_(g), listed_(listed), budget_(budget), tried_(g.num_operations, 0) {
    for (std::uint32_t o = 0; o < g.num_operations; ++o)
      if (g.needed[o] && listed[o] > budget) moments_.push_back(o);
    count_ = max_moments == 0 ? moments_.size() : std::min<std::size_t>(max_moments, moments_.size());
  }

  /// The number of moments to try.
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

  /// Returns the moment where the listed order holds most bytes. Precondition: count() > 0.
  [[nodiscard]] std::uint32_t first() const {
    return *std::max_element(moments_.begin(), moments_.end(),
                             [&](std::uint32_t a, std::uint32_t b) { return listed_[a] < listed_[b]; });
  }

  /// Returns the last moment at which the listed order exceeds the budget. Precondition: count() > 0.
  [[nodiscard]] std::uint32_t last() const { return moments_.back(); }

  /// Finds the tightest moments, `count` of them: `next` takes these in turn.
  void find_tightest(std::size_t count) {
    std::vector<std::pair<double, std::uint32_t>> parts;
    for (const std::uint32_t o : moments_)
      parts.push_back({-static_cast<double>(listed_[o] - budget_) /
                           static_cast<double>(std::max<std::int64_t>(1, listed_[o] - working_set_bytes(graph_, o))),
                       o});
    count = std::min(count, parts.size());
    std::partial_sort(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(count), parts.end());
    tightest_.clear();
    for (std::size_t i = 0; i < count; ++i) tightest_.push_back(parts[i].second);
  }

  /// Sets the estimates of the bound, one for each operation.
  void set_estimate(std::vector<double> estimate) {
    estimate_ = std::move(estimate);
    for (attempt& a : attempts_) a.error = a.value - estimate_[a.moment];
  }

  /// Returns the moment to try as number `i`, or `none`. Precondition: there are estimates, unless i is 0; count() > 0.
  [[nodiscard]] std::uint32_t next(std::size_t i) {
    if (i == 0) return first();
    if (i % 2 == 0) {
      while (next_tightest_ < tightest_.size() && tried_[tightest_[next_tightest_]]) ++next_tightest_;
      if (next_tightest_ < tightest_.size()) return tightest_[next_tightest_];
    }
    return most_promising();
  }

  /// The moment has been tried; nothing is learnt from it about estimates.
  void mark_tried(std::uint32_t moment) { tried_[moment] = 1; }
  /// The moment has been tried, and has given this bound.
  void record(std::uint32_t moment, double value) {
    mark_tried(moment);
    const auto at = std::lower_bound(attempts_.begin(), attempts_.end(), moment,
                                     [](const attempt& a, std::uint32_t o) { return a.moment < o; });
    attempts_.insert(at, {moment, value, estimate_.empty() ? value : value - estimate_[moment]});
  }

  /// The moments whose bounds are recorded, ascending.
  [[nodiscard]] const std::vector<attempt>& attempts() const noexcept { return attempts_; }

  /// Returns up to about `count` moments, ascending: half of them the tightest ones, half spread over the schedule, and
  /// those of `also`. Changes the tightest moments.
  [[nodiscard]] std::vector<std::uint32_t> sample(std::size_t count, std::vector<std::uint32_t> also) {
    if (moments_.size() <= count) return moments_;
    const std::size_t half = count / 2;
    find_tightest(half);
    also.insert(also.end(), tightest_.begin(), tightest_.end());
    for (std::size_t i = 0; i < half; ++i) also.push_back(moments_[i * moments_.size() / half]);
    std::sort(also.begin(), also.end());
    also.erase(std::unique(also.begin(), also.end()), also.end());
    return also;
  }

 private:
  /// Returns the moment of the highest corrected estimate that has not been tried.
  [[nodiscard]] std::uint32_t most_promising() const {
    std::uint32_t next = none;
    double highest = -std::numeric_limits<double>::infinity();
    std::size_t j = 0;  // the first attempt behind the moment
    for (const std::uint32_t o : moments_) {
      if (tried_[o]) continue;
      while (j < attempts_.size() && attempts_[j].moment < o) ++j;
      const double value = estimate_[o] + interpolated_error(o, j);
      if (value > highest) {
        highest = value;
        next = o;
      }
    }
    return next;
  }

  /// Interpolates between the errors at the attempts on both sides of `o`; attempt `j` is the first behind it.
  [[nodiscard]] double interpolated_error(std::uint32_t o, std::size_t j) const {
    if (attempts_.empty()) return 0;
    if (j == 0) return attempts_[0].error;
    if (j == attempts_.size()) return attempts_[j - 1].error;
    const double left = o - attempts_[j - 1].moment, right = attempts_[j].moment - o;
    return (attempts_[j - 1].error * right + attempts_[j].error * left) / (left + right);
  }

  const flat_graph& graph_;
  const std::vector<std::int64_t>& listed_;
  std::int64_t budget_;
  std::size_t count_ = 0;
  std::vector<std::uint32_t> moments_;  // ascending
  std::vector<std::uint8_t> tried_;     // whether each operation has been tried
  std::vector<attempt> attempts_;
  std::vector<std::uint32_t> tightest_;
  std::size_t next_tightest_ = 0;
  std::vector<double> estimate_;  // each operation's estimate
};

}  // namespace REMAT_NAMESPACE::detail
