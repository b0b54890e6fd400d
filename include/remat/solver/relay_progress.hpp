// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <functional>
#include <string_view>

#include "remat/core/control.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

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

}  // namespace remat
