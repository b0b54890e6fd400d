// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace remat {

/// One level of a hierarchy: forwards and backwards of sub-graphs, each of which can be run in several ways.
///
/// Every run takes place once, in the order of `runs`, and those marked with `again` any number of times after their
/// first. A run happens in one of its variants; what a variant reads has to be there before it begins. So a schedule is
/// a sequence of choices. The backward of a sub-graph runs with the option whose *phantom* is there: what that option
/// keeps between forward and backward is a tensor that this variant of the forward writes and this variant of the
/// backward reads.
///
/// A tensor that several runs write (an accumulated gradient) is there when all of them have run once, takes its bytes
/// from the first of them on, and cannot be dropped before its last read: none of them is marked `again`. Variants of
/// one run that write the same tensor are alternatives. The later runs of several find the tensor there, so it is among
/// what is there before they begin: their peak need not count it.
///
/// `simulate_level` is the exact meaning, `require_valid` what has to hold of the fields
/// (`hierarchy/simulate_level.hpp`).
/// \cite gusak2025hiremate
struct level_problem {
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  /// A peak half-way that depends on what is wanted later: `bytes` beyond what is there before the run begins, with all
  /// of that still counted. Of `gone`, which the variant has read by then, what no later choice needs is freed.
  struct inner_peak {
    std::int64_t bytes = 0;
    std::vector<std::uint32_t> gone{};  ///< some of what the variant reads, ascending
  };
  struct variant {
    double time = 0;
    /// The most that it needs while it runs, beyond what is there before it begins; what it writes is counted whether
    /// it is there already or not. May be less than what it leaves behind: what it reads may be gone half-way.
    std::int64_t peak_bytes = 0;
    std::vector<std::uint32_t> reads{};   ///< tensors, ascending
    std::vector<std::uint32_t> writes{};  ///< tensors, ascending
    std::vector<inner_peak> inner{};      ///< further peaks; may be empty
  };
  struct run {
    bool again = false;
    std::vector<variant> variants{};  ///< at least one
  };
  struct choice {
    std::uint32_t run = 0, variant = 0;
    friend bool operator==(const choice&, const choice&) = default;
  };

  std::vector<std::int64_t> bytes{};     ///< of each tensor
  std::vector<run> runs{};               ///< in a topological order
  std::vector<std::uint32_t> outputs{};  ///< tensors that have to be there at the end, ascending

  [[nodiscard]] std::size_t num_options() const noexcept {
    std::size_t count = 0;
    for (const run& r : runs) count += r.variants.size();
    return count;
  }
};

}  // namespace remat
