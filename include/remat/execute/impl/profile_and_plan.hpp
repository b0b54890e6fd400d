// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/execute/profile_and_plan.hpp"

#include <string>

#include "remat/core/error.hpp"
#include "remat/core/linkage.hpp"

namespace remat {

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
