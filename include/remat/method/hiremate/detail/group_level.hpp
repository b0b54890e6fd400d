// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "remat/hierarchy/detail/way.hpp"
#include "remat/method/hiremate/detail/level_builder.hpp"
#include "remat/method/hiremate/detail/level_problem.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat::detail {

/// The level of one group within budgets in bytes: the problem of its children, and the way back to a schedule of
/// `sub_graph_runs::problem_within(peak, save)`.
class group_level {
 public:
  /// Keeps references to its arguments. O(size of the level + operations · log) time.
  group_level(const flat_graph& g, std::span<const level_child> children, const sub_graph_runs& runs,
              std::int64_t peak_bytes, std::int64_t save_bytes);

  /// The builder of the level.
  [[nodiscard]] const level_builder& builder() const noexcept { return builder_; }
  /// The group as a problem of operations.
  [[nodiscard]] const problem& flat() const noexcept { return flat_; }
  /// The schedule of `flat()` that a schedule of the level expands to, freed as early as possible. It may exceed the
  /// peak budget: the caller checks it. Precondition: *take* runs once, and *turn* once behind it.
  [[nodiscard]] schedule expand(std::span<const level_problem::choice> choices) const;

 private:
  void append(std::span<const level_problem::choice> choices, std::vector<std::uint32_t>& order) const;

  const sub_graph_runs& runs_;
  level_builder builder_;
  problem flat_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> place_;  // operation of the graph, operation of `flat_`
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/hiremate/impl/group_level.hpp"
#endif
