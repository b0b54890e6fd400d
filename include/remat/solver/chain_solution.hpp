// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "remat/chain/chain_problem.hpp"
#include "remat/chain/chain_schedule.hpp"
#include "remat/core/control.hpp"
#include "remat/core/error.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

/// The answer of the solvers that take a chain: `no_remat`, `chen_sqrt`, `revolve`, `rotor`. As `solution`.
struct chain_solution {
  solve_status status = solve_status::timeout;
  std::optional<std::vector<chain_step>> steps{};  ///< has passed the exact simulation
  std::int64_t peak_bytes = 0;
  double makespan = std::numeric_limits<double>::infinity();
  double lower_bound = 0;           ///< proven
  bool persistent_optimum = false;  ///< proven the fastest of all memory-persistent schedules (`rotor`)
  solve_statistics statistics{};
  std::string message{};

  [[nodiscard]] bool has_schedule() const noexcept { return steps.has_value(); }
};

/// The only way from a solver's steps to a chain's solution: through the exact simulation. As for a graph.
inline bool accept(const chain_problem& p, chain_solution& best, std::vector<chain_step> steps) {
  const chain_report report = simulate(p, steps);
  if (!report.legal) throw internal_error("a solver made an invalid schedule of a chain: " + report.message);
  if (report.peak_bytes > p.budget()) return false;
  if (best.steps &&
      (report.time > best.makespan || (report.time == best.makespan && report.peak_bytes >= best.peak_bytes)))
    return false;
  best.peak_bytes = report.peak_bytes;
  best.makespan = report.time;
  best.statistics.computes = steps.size();
  best.statistics.recomputes = report.forwards - p.stages().length();
  best.steps = std::move(steps);
  best.status = solve_status::feasible;
  return true;
}

/// The bytes that no schedule of the chain can do without: those of the widest forward that saves, or backward.
[[nodiscard]] inline std::int64_t largest_working_set(const chain_problem& p) {
  const chain& c = p.stages();
  std::int64_t most = c.input_bytes() + c.activation_bytes(c.length());
  for (std::size_t i = 1; i <= c.length(); ++i) {
    const chain_stage& s = c.stage(i);
    const std::int64_t input = c.activation_bytes(i - 1);
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (std::size_t k = 0; k <= s.options.size(); ++k) {
      const chain_option o = s.option(k);
      least = std::min(least, o.saved_bytes + std::max(o.forward_overhead_bytes, input + o.backward_overhead_bytes));
    }
    most = std::max(most, c.input_bytes() + (i > 1 ? input : 0) + least);
  }
  return most;
}

/// Fills in how a solve ended. As for a graph; every forward and backward once bounds the time.
inline void conclude(const chain_problem& p, chain_solution& s, const run_clock& clock, stop_reason stopped) {
  s.lower_bound = std::max(s.lower_bound, p.stages().least_time());
  s.statistics.seconds = clock.seconds();
  s.statistics.work = clock.work_done();
  if (s.steps) {
    s.status = s.makespan <= s.lower_bound * (1 + 1e-12) ? solve_status::optimal : solve_status::feasible;
    return;
  }
  if (const std::int64_t least = largest_working_set(p); least > p.budget()) {
    s.status = solve_status::infeasible;
    s.message = "some stage needs " + std::to_string(least) + " bytes by itself, with the input of the chain";
  } else if (s.status != solve_status::error) {
    s.status = stopped == stop_reason::cancelled ? solve_status::cancelled : solve_status::timeout;
    if (s.message.empty() && stopped == stop_reason::none)
      s.message = "no schedule of this kind fits; that is no proof that there is none";
  }
}

/// Every forward with everything kept, then every backward: the steps of the baseline.
[[nodiscard]] inline std::vector<chain_step> store_all_steps(const chain& c) {
  std::vector<chain_step> steps;
  const auto loss = static_cast<std::uint32_t>(c.length() + 1);
  for (std::uint32_t i = 1; i <= loss; ++i) steps.push_back({chain_action::forward_all, i});
  for (std::uint32_t i = loss; i >= 1; --i) steps.push_back({chain_action::backward, i});
  return steps;
}

}  // namespace remat
