// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/execute/profile_and_plan.hpp"

#include <optional>
#include <string>
#include <utility>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/error.hpp"

namespace remat {

namespace detail::planning {

REMAT_INLINE void refuse_measuring_budget(std::int64_t budget, const std::string& message) {
  throw bad_argument("no schedule to measure operations within " + std::to_string(budget) + " bytes" +
                     (message.empty() ? std::string() : ": " + message));
}

REMAT_INLINE std::string no_schedule_message(std::string message) {
  return message.empty() ? "the solver found no schedule" : std::move(message);
}

REMAT_INLINE solution as_solution(std::optional<schedule> plan, std::string message) {
  solution out;
  if (plan) out.status = solve_status::feasible;
  out.plan = std::move(plan);
  out.message = std::move(message);
  return out;
}

}  // namespace detail::planning

}  // namespace remat
