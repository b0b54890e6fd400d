// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/id.hpp"

namespace REMAT_NAMESPACE::detail {

/// A sequence of operations, and the places where tensors are freed.
struct placed_frees {
  static constexpr std::uint32_t is_free = 1U << 31U;

  std::vector<std::uint32_t> steps{};     ///< operations, and tensors | `is_free`, in order
  std::vector<std::uint32_t> at_start{};  ///< tensors that must be there at the start, ascending
};

/// Places frees as `schedule_computes` does, for operations that are a part of a schedule: some tensors are there at
/// their start, and some must be there at their end. Working memory is kept between the calls.
class free_placer {
 public:
  /// `reads`, `writes`: operation → tensors. `makers`: for each tensor the number of operations that make it; when all
  /// of them run, it need not be there at the start. Keeps references to all.
  free_placer(const index_rows& reads, const index_rows& writes, const std::vector<std::uint32_t>& makers)
      : reads_(reads), writes_(writes), makers_(makers), live_(makers.size(), 0), met_(makers.size()) {}

  /// The steps of `operations` that end with the tensors of `wanted`. Operations whose results nobody reads are left
  /// out; those without results are too, unless `effects`. O(reads and writes of the operations · log) time.
  [[nodiscard]] placed_frees operator()(std::span<const std::uint32_t> operations,
                                        std::span<const std::uint32_t> wanted, bool effects = true) {
    placed_frees out;
    touched_.clear();
    for (const std::uint32_t t : wanted) want(t);
    for (std::size_t i = operations.size(); i-- > 0;) {
      const std::uint32_t o = operations[i];
      const auto is_open = [&](std::uint32_t t) {
        return live_[t] && std::find(met_[t].begin(), met_[t].end(), o) == met_[t].end();
      };
      const auto written = writes_[o];
      if (written.empty() ? !effects : std::none_of(written.begin(), written.end(), is_open)) continue;
      for (const std::uint32_t t : written) {
        if (is_open(t)) {
          met_[t].push_back(o);
          if (met_[t].size() == makers_[t]) live_[t] = 0;
        } else if (!live_[t]) {
          out.steps.push_back(t | placed_frees::is_free);
        }
      }
      for (const std::uint32_t t : reads_[o])
        if (!live_[t]) {
          want(t);
          out.steps.push_back(t | placed_frees::is_free);
        }
      out.steps.push_back(o);
    }
    std::reverse(out.steps.begin(), out.steps.end());
    for (const std::uint32_t t : touched_)
      if (live_[t]) {
        out.at_start.push_back(t);
        live_[t] = 0;
      }
    std::sort(out.at_start.begin(), out.at_start.end());
    return out;
  }

 private:
  void want(std::uint32_t t) {
    live_[t] = 1;
    met_[t].clear();
    touched_.push_back(t);
  }

  const index_rows &reads_, &writes_;
  const std::vector<std::uint32_t>& makers_;
  std::vector<std::uint8_t> live_;
  std::vector<std::vector<std::uint32_t>> met_;  // each live tensor's makers so far; few tensors have several
  std::vector<std::uint32_t> touched_;
};

}  // namespace REMAT_NAMESPACE::detail
