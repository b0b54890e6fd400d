// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/hiremate/detail/group_level.hpp"

#include <algorithm>
#include <cstddef>

#include "remat/core/detail/linkage.hpp"
#include "remat/schedule/simplify.hpp"

namespace remat::detail {

REMAT_INLINE group_level::group_level(const flat_graph& g, std::span<const level_child> children,
                                      const sub_graph_runs& runs, std::int64_t peak_bytes, std::int64_t save_bytes)
    : runs_(runs),
      builder_(g, children, runs, peak_bytes, save_bytes),
      flat_(runs.problem_within(peak_bytes, save_bytes)) {
  const std::vector<std::uint32_t>& operations = runs.part().operations;
  for (std::uint32_t i = 0; i < operations.size(); ++i)
    place_.emplace_back(operations[i], i < runs.num_forward() ? i : i + 2);
  std::sort(place_.begin(), place_.end());
}

REMAT_INLINE schedule group_level::expand(std::span<const level_problem::choice> choices) const {
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

REMAT_INLINE void group_level::append(std::span<const level_problem::choice> choices,
                                      std::vector<std::uint32_t>& order) const {
  for (const std::uint32_t o : builder_.expand(choices))
    order.push_back(std::lower_bound(place_.begin(), place_.end(), std::pair{o, std::uint32_t{0}})->second);
}

}  // namespace remat::detail
