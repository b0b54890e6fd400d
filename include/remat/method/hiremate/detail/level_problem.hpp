// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace remat::detail {

/// Sorts a list, and removes repetitions.
template <class T>
void sort_unique(std::vector<T>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

/// One level of a hierarchy: the forwards and backwards of sub-graphs, each of which can be run in several ways.
///
/// Every run takes place once, in the order of `runs`; a run marked with `again` may take place any number of times
/// after that. A run takes place in one of its variants, and the tensors that the variant reads must be resident before
/// it begins. A schedule is a sequence of choices. The *phantom* of a way to run a sub-graph is one tensor that stands
/// for everything the way keeps between forward and backward: that variant of the forward writes it, and that variant
/// of the backward reads it.
///
/// A tensor that several runs write (an accumulated gradient) is complete when all of them have run once. It takes its
/// bytes from the first of these runs on, and cannot be dropped before its last read: none of these runs is marked
/// `again`. The later ones find the tensor resident, so their peaks need not count it. Variants of one run that write
/// the same tensor are alternatives.
///
/// `simulate_level` defines the meaning exactly, and `require_valid` the valid fields
/// (`method/hiremate/detail/simulate_level.hpp`). \cite gusak2025hiremate
struct level_problem {
  static constexpr std::uint32_t none =
      std::numeric_limits<std::uint32_t>::max();  ///< stands for "no run" and "no tensor"

  /// A peak half-way through a run: `bytes` beyond the bytes resident before the run, less the tensors of `gone` that
  /// no later choice reads.
  struct inner_peak {
    std::int64_t bytes = 0;             ///< the peak
    std::vector<std::uint32_t> gone{};  ///< tensors that the variant has read for the last time by then, ascending
  };
  /// One way in which a run can take place.
  struct variant {
    double time = 0;  ///< the run's time in this variant, in the cost model's unit
    /// The most bytes that the run needs beyond those resident before it begins. Tensors that it writes are counted
    /// also if they are resident already. May be less than the bytes of these, since tensors read may go half-way.
    std::int64_t peak_bytes = 0;
    std::vector<std::uint32_t> reads{};   ///< tensors, ascending
    std::vector<std::uint32_t> writes{};  ///< tensors, ascending
    std::vector<inner_peak> inner{};      ///< further peaks; may be empty
  };
  /// A forward or a backward of a sub-graph, with all its variants.
  struct run {
    bool again = false;               ///< the run may take place any number of times after its first
    std::vector<variant> variants{};  ///< at least one
  };
  /// One entry of a schedule: a run takes place in one of its variants.
  struct choice {
    std::uint32_t run = 0;      ///< an index of `runs`
    std::uint32_t variant = 0;  ///< an index of the run's `variants`
    friend bool operator==(const choice&, const choice&) = default;
  };

  std::vector<std::int64_t> bytes{};     ///< of each tensor
  std::vector<run> runs{};               ///< in a topological order
  std::vector<std::uint32_t> outputs{};  ///< tensors that must be resident at the end, ascending

  /// The number of variants of all runs.
  [[nodiscard]] std::size_t num_ways() const noexcept {
    std::size_t count = 0;
    for (const run& r : runs) count += r.variants.size();
    return count;
  }
};

}  // namespace remat::detail
