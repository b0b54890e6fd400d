// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "remat/method/hiremate/detail/level_problem.hpp"
#include "remat/method/hiremate/detail/simulate_level.hpp"
#include "remat/mip/detail/phase_model.hpp"

namespace remat::detail::level_program {

[[nodiscard]] inline bool contains(const std::vector<std::uint32_t>& ascending, std::uint32_t x) {
  return std::binary_search(ascending.begin(), ascending.end(), x);
}

/// Which variants of a level's runs may be chosen, and in which phases they may be of use: what `level_model` decides
/// before it writes a row.
class level_phases {
 public:
  /// Finds the variants that may be chosen. O(rounds × size of the level) time; a round takes away one variant at
  /// least. The level must live as long as this object, and `require_valid(level)` holds.
  level_phases(const level_problem& level, std::int64_t budget, double at_most, std::uint32_t again_from);
  /// Finds the first phase. `stop()` ends the search early.
  void find_first(const size_units& sizes, const std::function<bool()>& stop);

  [[nodiscard]] const level_problem& level() const noexcept { return level_; }
  [[nodiscard]] const level_writers& writers() const noexcept { return writers_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(level_.runs.size()); }
  [[nodiscard]] const std::vector<level_problem::variant>& variants(std::uint32_t k) const {
    return level_.runs[k].variants;
  }
  /// True when some run has no variant that fits the budget.
  [[nodiscard]] bool is_impossible() const noexcept { return impossible_; }
  /// The sum over all runs of the least time of a variant that may be chosen.
  [[nodiscard]] double least_time() const noexcept { return least_time_; }

  /// True when variant o may be chosen for the first run of k.
  [[nodiscard]] bool may_run_first(std::uint32_t k, std::uint32_t o) const { return first_allowed_[k][o] != 0; }
  [[nodiscard]] bool may_run_again(std::uint32_t phase, std::uint32_t k, std::uint32_t o) const {
    return again_allowed_[k][o] && phase >= first_again(k) && phase <= last_phase_[k][o];
  }
  /// Nothing runs again before this phase.
  [[nodiscard]] std::uint32_t first() const noexcept { return first_; }
  [[nodiscard]] const phase_uses& uses() const noexcept { return uses_; }
  [[nodiscard]] bool is_used_after(std::uint32_t x, std::uint32_t phase, std::uint32_t k) const {
    return uses_.is_used_after(x, phase, k);
  }

  /// True when all variants of the runs that write x write it. Otherwise x is an *alternative*.
  [[nodiscard]] bool is_common(std::uint32_t x) const { return common_[x] != 0; }
  /// True when x cannot be dropped before this event ends, once it has been made: it is made only once and read by all
  /// variants of a later first run.
  [[nodiscard]] bool must_stay_after(std::uint32_t x, std::uint32_t phase, std::uint32_t k) const {
    return common_[x] && must_stay_[x] > uses_.event(phase, k);
  }
  [[nodiscard]] bool must_stay_from(std::uint32_t x, std::uint32_t phase) const {
    return common_[x] && must_stay_[x] >= uses_.event(phase, 0);
  }

 private:
  bool is_allowed(std::uint32_t k, std::uint32_t o) const { return first_allowed_[k][o] || again_allowed_[k][o]; }
  std::uint32_t first_again(std::uint32_t k) const;
  void select_variants(double at_most);
  bool drop_variants_that_do_not_fit(std::vector<double>& least);
  bool drop_slow_variants(double at_most, const std::vector<double>& least);
  void find_alternatives();
  void find_simple_alternatives();
  void find_tensors_that_must_stay();
  void find_last_uses();
  std::uint32_t first_that_does_not_fit(const size_units& sizes) const;
  std::int64_t max_units_kept(std::uint32_t k, std::uint32_t phase, const size_units& sizes) const;

  const level_problem& level_;
  level_writers writers_;
  std::int64_t budget_;
  std::uint32_t again_from_;
  std::vector<std::vector<std::uint8_t>> first_allowed_, again_allowed_;  // of a run: its variants
  bool impossible_ = false;
  double least_time_ = 0;
  std::vector<std::uint8_t> common_;
  std::vector<std::uint8_t> simple_;                    // of an alternative: see `level_model`
  std::vector<std::uint64_t> must_stay_;                // of a tensor: an event
  std::vector<std::vector<std::uint32_t>> last_phase_;  // of a run: its variants
  std::uint32_t first_ = 0;
  phase_uses uses_;
};

}  // namespace remat::detail::level_program

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/hiremate/impl/level_phases.hpp"
#endif
