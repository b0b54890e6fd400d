// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/execute/profile_and_plan.hpp"

#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/linkage.hpp"

namespace remat {

REMAT_INLINE schedule listed_order(const problem& p) {
  const flat_graph& g = p.graph();
  std::vector<std::uint32_t> left(g.num_tensors, 0);  // reads and writes still to come
  for (std::size_t t = 0; t < g.num_tensors; ++t)
    left[t] = static_cast<std::uint32_t>(g.producers[t].size() + g.consumers[t].size());
  schedule out;
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    out.compute(static_cast<op_id>(o));
    for (const auto* rows : {&g.inputs, &g.outputs})
      for (const std::uint32_t t : (*rows)[o])
        if (--left[t] == 0 && !g.final_output[t]) out.free(static_cast<tensor_id>(t));
  }
  return out;
}

namespace detail::planning {

REMAT_INLINE void refuse_measuring_budget(std::int64_t budget, const std::string& message) {
  throw bad_argument("no schedule to measure operations within " + std::to_string(budget) + " bytes" +
                     (message.empty() ? std::string() : ": " + message));
}

REMAT_INLINE std::string no_schedule_message(std::string message, std::int64_t solved, std::int64_t budget) {
  if (message.empty()) message = "the solver found no schedule";
  if (solved < budget)
    message += " (within " + std::to_string(solved) + " bytes, for an arena within " + std::to_string(budget) + ")";
  return message;
}

REMAT_INLINE std::string large_arena_message(std::int64_t arena, std::int64_t budget, unsigned attempts) {
  return "the arena takes " + std::to_string(arena) + " bytes, more than the budget of " + std::to_string(budget) +
         ", after " + std::to_string(attempts) + " solves";
}

}  // namespace detail::planning

}  // namespace remat
