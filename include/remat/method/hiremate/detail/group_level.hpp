// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "remat/method/hiremate/detail/level_builder.hpp"
#include "remat/schedule/simplify.hpp"

namespace remat::detail {

/// The level of one group within budgets in bytes: the problem of its children, and the way back to a schedule of
/// `sub_graph_runs::problem_within(peak, save)`.
class group_level {
 public:
  /// Keeps references to its arguments. O(size of the level + operations · log) time.
  group_level(const flat_graph& g, std::span<const level_child> children, const sub_graph_runs& runs,
              std::int64_t peak_bytes, std::int64_t save_bytes)
      : runs_(runs),
        builder_(g, children, &runs, peak_bytes, save_bytes),
        flat_(runs.problem_within(peak_bytes, save_bytes)) {
    const std::vector<std::uint32_t>& operations = runs.part().operations;
    for (std::uint32_t i = 0; i < operations.size(); ++i)
      place_.emplace_back(operations[i], i < runs.num_forward() ? i : i + 2);
    std::sort(place_.begin(), place_.end());
  }

  /// The builder of the level.
  [[nodiscard]] const level_builder& builder() const noexcept { return builder_; }
  /// The group as a problem of operations.
  [[nodiscard]] const problem& flat() const noexcept { return flat_; }
  /// The schedule of `flat()` that a schedule of the level expands to, freed as early as possible. It may exceed the
  /// peak budget: the caller checks it. Precondition: *take* runs once, and *turn* once behind it.
  [[nodiscard]] schedule expand(std::span<const level_problem::choice> choices) const {
    // Take and turn are the two runs in the middle of the level.
    const auto middle = static_cast<std::uint32_t>(builder_.num_children());
    std::size_t taken = 0, turned = 0;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (choices[i].run == middle) taken = i;
      if (choices[i].run == middle + 1) turned = i;
    }
    std::vector<std::uint32_t> order;
    append(choices.first(taken), order);
    order.push_back(runs_.num_forward());
    append(choices.subspan(taken, turned - taken), order);
    order.push_back(runs_.num_forward() + 1);
    append(choices.subspan(turned), order);
    return schedule_computes(flat_, order);
  }

 private:
  void append(std::span<const level_problem::choice> choices, std::vector<std::uint32_t>& order) const {
    for (const std::uint32_t o : builder_.expand(choices))
      order.push_back(std::lower_bound(place_.begin(), place_.end(), std::pair{o, std::uint32_t{0}})->second);
  }

  const sub_graph_runs& runs_;
  level_builder builder_;
  problem flat_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> place_;  // operation of the graph, operation of `flat_`
};

}  // namespace remat::detail
