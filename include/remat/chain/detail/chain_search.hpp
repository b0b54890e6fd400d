// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "remat/chain/detail/chain_program.hpp"
#include "remat/core/run.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat::detail {

/// Options of `search_chain`.
struct chain_search_options {
  std::uint32_t slots = 500;                         ///< `chain_program_options::slots`
  std::int64_t table_bytes = std::int64_t{1} << 30;  ///< `chain_program_options::table_bytes`
  /// The chain's own count of the memory of schedules that are tried, at most, in budgets. Expanded schedules are freed
  /// early, so they need less than the chain counts.
  double most_memory = 4.0 / 3;
  /// Schedules are tried whose lost time, in the chain's count, is at most this times that of the best schedule known.
  double allowance = 1.3;
};

/// The result of `search_chain`.
struct chain_search_result {
  std::optional<schedule> plan{};                         ///< the fastest schedule that fits; none: none was found
  double time = std::numeric_limits<double>::infinity();  ///< of the plan
  double table_time = std::numeric_limits<double>::infinity();  ///< of the table's schedule within the budget
  double flat_time = 0;    ///< of the chain without recomputation, in the same count
  std::size_t tried = 0;   ///< schedules that were expanded and checked
  bool too_large = false;  ///< the table was not filled, because of `table_bytes`
};

/// Fills the table of a chain, expands its schedules to operations, fastest first, and returns the fastest one that
/// passes the exact checker within the budget of `p`. Stops where the others cannot be much faster than `best_time`,
/// the time of the best schedule that is known, or than its own best. One unit of work is a row of the table or an
/// expanded schedule. Polls after each of them.
[[nodiscard]] chain_search_result search_chain(const problem& p, chain_program& program, double best_time,
                                               run_clock& clock, const chain_search_options& options = {});

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/chain/impl/chain_search.hpp"
#endif
