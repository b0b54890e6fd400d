// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "remat/core/detail/linkage.hpp"

namespace REMAT_NAMESPACE::detail {

/// N(a, k): the most equal stages that can be reversed beside a kept inputs if each runs forward at most k times, the
/// run that saves for its backward among them.
///
/// The stages that run once are kept whole: N(a, 1) is the number of them that fit. For k > 1, N(a, k) = N(a + 1, k) +
/// N(a, k − 1): the input of the right part is kept beside it, and the left part runs once to get there. So the k-th
/// run of a stage is needed by l − N(a, k − 1) of l stages at least, and `runs` is the sum over k.
///
/// No schedule of a chain's actions does better. Take any whose stages run at most k > 1 times, and let p be the
/// greatest stage whose output, at the backward of a later stage, is the first one that is kept. What a stage saves is
/// never there without its input, so the output of p is kept alone, or p is the first stage. Until then the stages 1 …
/// p have run; they run again from the input of the chain, at most k − 1 times, so p ≤ N(a, k − 1). During all earlier
/// backwards some output up to that of p is kept, so there are at most N(a + 1, k) later stages. If other stages may
/// run as often as they like, and cost nothing, the same holds for the rest: their outputs are as good as their inputs.
/// So it holds for the stages that run at most k times, and stages may have any times. If N(a, 1) is the memory in
/// bytes for what stages save, N(a, k) bounds the sum of these bytes in the same way.
class run_layers {
 public:
  /// `whole[a]` is N(a, 1), not zero; no input can be kept beside those of the last level. N is known up to the k of r
  /// + `further` runs, where r is the number of runs that some of `stages` stages need, and up to `stages`. O(levels ·
  /// k) time and memory.
  run_layers(std::vector<std::uint64_t> whole, std::uint64_t stages, std::size_t further = 0)
      : sums_{std::vector<std::uint64_t>(whole.size())} {
    most_.push_back(sums_[0]);
    if (whole.empty()) return;
    for (std::uint64_t& n : whole) n = std::min(n, stages);
    for (most_.push_back(std::move(whole)); levels() > 1 && (most_.back()[0] < stages || further-- > 0);) {
      std::vector<std::uint64_t> next = most_.back();
      for (std::size_t a = levels() - 1; a-- > 0;) next[a] = std::min(stages, next[a] + next[a + 1]);
      most_.push_back(std::move(next));
    }
    for (std::size_t k = 1; k < most_.size(); ++k) {
      sums_.push_back(sums_.back());
      for (std::size_t a = 0; a < levels(); ++a) sums_[k][a] += most_[k - 1][a];
    }
  }

  /// The numbers a of kept inputs are below this one.
  [[nodiscard]] std::size_t levels() const noexcept { return most_[0].size(); }
  /// N(a, k) is known for k below this one.
  [[nodiscard]] std::size_t depth() const noexcept { return most_.size(); }
  /// N(a, k). Preconditions: a < levels(), k < depth().
  [[nodiscard]] std::uint64_t most(std::size_t a, std::size_t k) const noexcept { return most_[k][a]; }
  /// The least k with N(a, k) ≥ l: the runs of one stage more than l − 1; depth() if none is known. O(log r) time.
  [[nodiscard]] std::size_t runs_of_one_more(std::uint64_t l, std::size_t a) const noexcept {
    const auto at =
        std::partition_point(most_.begin(), most_.end(), [&](const std::vector<std::uint64_t>& n) { return n[a] < l; });
    return static_cast<std::size_t>(at - most_.begin());
  }
  /// A lower bound on all runs of l stages: the sum of l − N(a, k) over k, as far as it is positive. O(log r) time.
  /// Precondition: `runs_of_one_more` is known.
  [[nodiscard]] std::uint64_t runs(std::uint64_t l, std::size_t a) const noexcept {
    const std::size_t k = runs_of_one_more(l, a);
    return k * l - sums_[k][a];
  }

 private:
  std::vector<std::vector<std::uint64_t>> most_;  // [k][a]: N(a, k)
  std::vector<std::vector<std::uint64_t>> sums_;  // [k][a]: N(a, 0) + … + N(a, k − 1)
};

}  // namespace REMAT_NAMESPACE::detail
