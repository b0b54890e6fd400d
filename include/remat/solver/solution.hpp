// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "remat/core/id.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/solver/figures.hpp"

namespace remat {

/// How a solve ended. `optimal` and `infeasible` are proven. `timeout`: a limit of time or work, or the end of a
/// heuristic, was reached before any schedule was found; that proves nothing. `cancelled`: a stop request came before
/// any schedule. `error`: the solver cannot be applied to the problem; `solution::message` says why.
enum class solve_status : std::uint8_t { optimal, feasible, infeasible, timeout, cancelled, error };

/// Returns the name of the enumerator.
[[nodiscard]] constexpr std::string_view to_string(solve_status s) noexcept {
  switch (s) {
    case solve_status::optimal:
      return "optimal";
    case solve_status::feasible:
      return "feasible";
    case solve_status::infeasible:
      return "infeasible";
    case solve_status::timeout:
      return "timeout";
    case solve_status::cancelled:
      return "cancelled";
    case solve_status::error:
      return "error";
  }
  return "unknown";
}

/// Figures of a solve, for tables and benchmarks.
struct solve_statistics {
  double seconds = 0;            ///< wall clock time
  std::uint64_t work = 0;        ///< in units of `work_of`
  std::uint64_t computes = 0;    ///< runs of operations in the plan
  std::uint64_t recomputes = 0;  ///< runs in the plan beyond the first of each operation
  figures own{};                 ///< what the parts of the solver did; the solver's header names them
};

/// The answer of every solver.
struct solution {
  solve_status status = solve_status::timeout;  ///< how the solve ended
  std::optional<schedule> plan{};               ///< the schedule; it has passed the exact checker
  /// The part that found the plan, outermost first, such as "auto/rockmate/retain"; empty without a plan. Each solver's
  /// header names its parts. A schedule that a second part finds as well stays the first one's.
  std::string by{};
  std::int64_t peak_bytes = 0;                            ///< of the plan
  double time = std::numeric_limits<double>::infinity();  ///< of the plan
  double lower_bound = 0;           ///< proven, on the time of every schedule within the budget; infinite: infeasible
  bool proven = false;              ///< `lower_bound` has been computed (`prove`)
  std::optional<op_id> obstacle{};  ///< where infeasible: the operation that does not fit the budget, if known
  solve_statistics statistics{};    ///< figures of the solve
  std::string message{};            ///< one line for people; may be empty

  /// True when there is a plan.
  [[nodiscard]] bool has_schedule() const noexcept { return plan.has_value(); }
};

}  // namespace remat
