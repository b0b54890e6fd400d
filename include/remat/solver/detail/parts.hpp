// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string_view>

#include "remat/core/run.hpp"
#include "remat/solver/solution.hpp"

namespace remat::detail {

/// \file
/// Helpers of solvers that run other solvers as parts.

/// The `on_progress` callback for a part of a solve; empty where nobody listens to the whole solve.
///
/// It passes the part's news on in the name of `solver`, with the part's name as the stage, and with the better of what
/// the part and `best` hold. Time counts from the start of the whole solve. Keeps references to `clock` and `best`.
[[nodiscard]] inline std::function<void(const progress&)> relay_progress(std::string_view solver,
                                                                         const run_clock& clock, const solution& best) {
  if (!clock.control().on_progress) return nullptr;
  return [solver, &clock, &best](progress news) {
    news.stage = news.solver;
    news.solver = solver;
    news.best_objective = std::min(news.best_objective, best.time);
    news.lower_bound = std::max(news.lower_bound, best.lower_bound);
    news.elapsed = clock.elapsed();
    news.time_limit = clock.control().time_limit;
    clock.control().on_progress(news);
  };
}

/// Operations of an eviction pass that count as one unit of work of a solve that has `evict` as a part: a move of
/// refinement, or a state of `exact`. Tuned on rk/resnet50, rk/transformer-encdec and unet5-b16-256 of
/// tests/data/graphs.
inline constexpr std::uint64_t evictions_per_work = 64;

/// `run` with its limit of work in operations of eviction passes: for `evict` as a part.
[[nodiscard]] inline run_control in_evictions(run_control run) {
  if (run.work_limit != run_control::no_work_limit)
    run.work_limit = std::min(run.work_limit, run_control::no_work_limit / evictions_per_work - 1) * evictions_per_work;
  return run;
}

/// Units of work for `operations` of eviction passes, at least 1 if there was any.
[[nodiscard]] constexpr std::uint64_t work_of_evictions(std::uint64_t operations) noexcept {
  return operations / evictions_per_work + (operations % evictions_per_work != 0);
}

}  // namespace remat::detail
