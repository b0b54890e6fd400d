// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/chain_problem.hpp"
#include "remat/chain/chain_schedule.hpp"
#include "remat/core/run.hpp"
#include "remat/solver/concepts.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

/// The answer of the solvers of chains: `no_remat`, `chen_sqrt`, `revolve`, `rotor`. Its members mean what those of
/// `solution` mean; its plan is a list of the chain's steps.
struct chain_solution {
  solve_status status = solve_status::timeout;            ///< how the solve ended
  std::optional<std::vector<chain_step>> plan{};          ///< has passed the exact simulation
  std::int64_t peak_bytes = 0;                            ///< of the plan
  double time = std::numeric_limits<double>::infinity();  ///< of the plan
  double lower_bound = 0;           ///< proven: no schedule within the budget takes less time; infinite: none fits
  bool proven = false;              ///< `lower_bound` is at least what `prove` finds
  bool persistent_optimum = false;  ///< proven: no memory-persistent schedule is faster (`rotor`)
  /// Figures of the solve. Its `computes` are the steps of the plan, its `recomputes` the forwards beyond one for each
  /// stage.
  solve_statistics statistics{};
  std::string message{};  ///< one line for people; may be empty

  /// True when there is a plan.
  [[nodiscard]] bool has_schedule() const noexcept { return plan.has_value(); }
};

/// The answers to problems of chains.
template <>
struct solution_type<chain_problem> {
  using type = chain_solution;  ///< The type of the answers.
};

/// Takes `plan` into `best` if it is within the budget and faster than what `best` holds (of equal time: lower peak).
/// The only way from a solver's steps to a solution: through the exact simulation. Returns whether `plan` was taken.
/// Throws `internal_error` for a plan that is not legal, which is a defect of the solver. O(steps + L) time.
bool accept(const chain_problem& p, chain_solution& best, std::vector<chain_step> plan);

/// The bytes that every schedule of the chain needs: those of the widest forward that saves, or of the widest backward.
/// O(stages and options) time.
[[nodiscard]] std::int64_t largest_working_set(const chain_problem& p);

/// Gives `s` a proven lower bound: the fastest forward and backward of each stage once; infinite where the budget is
/// below `largest_working_set`, and then `s` says `infeasible` and why. Returns whether it does.
/// O(stages and options) time; `run` is not used, since that takes no time to speak of.
bool prove(const chain_problem& p, chain_solution& s, const run_control& run = {});

/// Fills in how a solve ended: the proven lower bound, `optimal` where the time meets it, else why it stopped.
void conclude(const chain_problem& p, chain_solution& s, const run_clock& clock, stop_reason stopped);

/// The steps of the baseline: every forward with everything kept, then every backward. O(L) time.
[[nodiscard]] std::vector<chain_step> store_all_steps(const chain& c);

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/solver/impl/chain_solution.hpp"
#endif
