// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/fit_arena.hpp"
#include "remat/execute/host.hpp"
#include "remat/execute/kernels.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/execute/profile.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/memory/plan.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/solution.hpp"

namespace remat {

/// Options of `profile_and_plan` and `make_planned`.
struct planning_options {
  profile_options profile{};                 ///< how operations are measured
  std::int64_t budget = problem::unlimited;  ///< bytes: for the arena, or for the schedule's peak
  bool arena_within_budget = true;           ///< the budget is the arena's, gaps included; otherwise the peak's
  unsigned attempts = 6;                     ///< most solves to bring the arena within the budget
  /// Bytes, for the peak of the schedule under which operations are measured. The listed order has the baseline's peak;
  /// if that is more, operations are measured under a schedule that the solver finds with all times equal.
  std::int64_t measuring_budget = problem::unlimited;
  std::uint32_t streams = 1;     ///< of the executor that is returned; operations are measured on one stream
  memory_plan_options memory{};  ///< for both arenas
  /// `launch_options::bound_outputs` and `accumulated_outputs` of the executor that is returned; bind them before it
  /// runs. While operations are measured, all outputs lie in the arena, so that nothing is added to the caller's sums.
  std::vector<tensor_id> bound_outputs{}, accumulated_outputs{};
};

/// A training step that was measured, planned with the measured times, and is ready to run.
template <class Executor>
struct planned_step {
  std::unique_ptr<Executor> executor{};  ///< null if no schedule was found, or none whose arena fits: see `message`
  profile_report measured{};             ///< of the first schedule
  std::optional<problem> instance{};     ///< with the measured times and the budget
  schedule plan{};                       ///< the schedule of the executor; empty without one
  double predicted_seconds = 0;    ///< of a training step: the measured times along the plan, on `streams` streams
  double baseline_seconds = 0;     ///< of a training step with nothing recomputed, on one stream
  std::int64_t peak_bytes = 0;     ///< of the plan
  std::int64_t arena_bytes = 0;    ///< of the plan's arena
  std::int64_t solved_budget = 0;  ///< for the peak, of the solve that found the plan; see `arena_solution`
  unsigned attempts = 0;           ///< solves
  std::string message{};           ///< one line: the solver's, or the reason why there is no executor

  /// True when there is an executor.
  [[nodiscard]] bool ready() const noexcept { return executor != nullptr; }
};

namespace detail::planning {

[[noreturn]] void refuse_measuring_budget(std::int64_t budget, const std::string& message);
/// The message of a solve without a schedule: the solver's own, if there is one.
[[nodiscard]] std::string no_schedule_message(std::string message);
/// The answer of a solver that returns another type than `solution`, with an optional schedule and a message.
[[nodiscard]] solution as_solution(std::optional<schedule> plan, std::string message);

/// Measures operations under the listed order, or a schedule within `measuring_budget`. That schedule's executor and
/// arena are destroyed before this returns.
template <sized_graph G, class Make, class Solve>
[[nodiscard]] profile_report measure_operations(const G& graph, Make& make, Solve& solve,
                                                const planning_options& options) {
  const problem equal_times(graph, unit_cost{});
  schedule first = listed_order(equal_times);
  if (equal_times.graph().baseline_peak > options.measuring_budget) {
    auto found = solve(equal_times.with_budget(options.measuring_budget));
    if (!found.plan) refuse_measuring_budget(options.measuring_budget, std::string(found.message));
    first = *std::move(found.plan);
  }
  const auto executor = make(launch_plan(graph, equal_times, first, {.memory = options.memory}), true);
  return profile(*executor, options.profile);
}

/// Makes the executor of `out.plan`, whose arena is `memory` if that is given and else planned here.
template <sized_graph G, class Make, class Executor>
void make_executor(const G& graph, Make& make, const planning_options& options, const memory_plan* memory,
                   planned_step<Executor>& out) {
  // Where the arena is within the budget, the peak need not be: it counts the outputs in the caller's memory, too.
  const problem p = memory == nullptr ? *out.instance : out.instance->with_budget(problem::unlimited);
  const launch_options launching{.streams = options.streams,
                                 .memory = options.memory,
                                 .bound_outputs = options.bound_outputs,
                                 .accumulated_outputs = options.accumulated_outputs};
  launch_plan launches = memory == nullptr ? launch_plan(graph, p, out.plan, launching)
                                           : launch_plan(graph, p, out.plan.steps, *memory, launching);
  out.arena_bytes = launches.arena_bytes();
  out.peak_bytes = launches.peak_bytes();
  out.predicted_seconds = launches.assignment().makespan;
  out.executor = make(std::move(launches), false);
}

/// Solves `out.instance` and makes the executor. If the arena must be within the budget, `fit_arena_by` sees to that.
template <sized_graph G, class Make, class Solve, class Executor>
void plan_and_make(const G& graph, Make& make, Solve& solve, const planning_options& options,
                   planned_step<Executor>& out) {
  const auto solve_one = [&](const problem& p, const run_control& = {}) {
    auto found = solve(p);
    if constexpr (std::is_convertible_v<decltype(found), solution>)
      return solution(std::move(found));
    else
      return as_solution(std::move(found.plan), std::string(found.message));
  };
  std::optional<memory_plan> memory;
  solution found;
  if (options.arena_within_budget) {
    fit_arena_options fitting;
    fitting.budget = options.budget;
    fitting.memory = options.memory;
    fitting.elsewhere = options.bound_outputs;
    fitting.elsewhere.insert(fitting.elsewhere.end(), options.accumulated_outputs.begin(),
                             options.accumulated_outputs.end());
    fitting.solves = std::max(1u, options.attempts);
    arena_solution fit = fit_arena_by(*out.instance, solve_one, fitting);
    out.attempts = fit.solves;
    out.solved_budget = fit.solved_budget;
    memory = std::move(fit.memory);
    found = std::move(fit);
  } else {
    out.attempts = 1;
    out.solved_budget = options.budget;
    found = solve_one(*out.instance);
  }
  out.message = found.plan ? std::move(found.message) : no_schedule_message(std::move(found.message));
  if (!found.plan) return;
  out.plan = *std::move(found.plan);
  make_executor(graph, make, options, memory ? &*memory : nullptr, out);
}

}  // namespace detail::planning

/// Measures the operations of a training step, plans it with the measured times, and makes the executor of the plan.
///
///  - `make(launch_plan, bool timing)` returns a `std::unique_ptr` to an executor with its tensors bound. With
///  `timing`,
///    the executor must be a `timed_executor`.
///  - `solve(problem)` returns something with `.plan`, an optional schedule, and `.message`: call any solver in a
///    lambda.
///
/// Operations that the first schedule does not run are needed by no output; their time counts as 0 seconds. If the
/// arena must be within the budget, `solve` gets the problem of the arena, whose sizes are rounded up to the alignment
/// (`arena_problem`). If gaps still make an arena too large, the step is solved again with less memory
/// (`fit_arena_by`). Throws what a `problem`, `plan_memory`, a `launch_plan` and the callables throw; `bad_argument` if
/// the solver finds no schedule within `measuring_budget`.
template <sized_graph G, class Make, class Solve>
requires std::invocable<Make&, launch_plan, bool> && std::invocable<Solve&, const problem&>
[[nodiscard]] auto profile_and_plan(const G& graph, Make&& make, Solve&& solve, const planning_options& options = {}) {
  using executor_type = typename std::invoke_result_t<Make&, launch_plan, bool>::element_type;
  planned_step<executor_type> out;
  out.measured = detail::planning::measure_operations(graph, make, solve, options);
  if (out.measured.runs == 0) {
    out.message = "measuring was cancelled before a run had ended";
    return out;
  }
  out.instance.emplace(graph, out.measured.times.filled(graph, callable_cost{[](op_id) { return 0.0; }}),
                       options.budget);
  // What adds to a sum over training steps must run once.
  out.instance = out.instance->producing_once(options.accumulated_outputs);
  out.baseline_seconds = out.instance->graph().baseline_time;
  detail::planning::plan_and_make(graph, make, solve, options, out);
  return out;
}

/// Memory of a tensor that is always resident.
struct tensor_binding {
  tensor_id tensor{};                   ///< the tensor that is bound
  std::span<const std::byte> memory{};  ///< its bytes, which must outlive the executor
};

/// `profile_and_plan` on the host, with the user's kernels and the memory of parameters and inputs.
///
/// `host` is for the executor that is returned. The executor that measures always notes times, never watches the
/// kernels (`debug`, `check_inputs`), and takes memory from `host.memory` if the given arena is too small for it. The
/// kernels are copied for it; to share them, give a reference (`std::ref`).
///
///     auto step = make_planned(graph, kernels, bindings, [](const problem& p) { return evict(p); },
///                              {.budget = bytes});
///     step.executor->run();  // predicted: step.predicted_seconds
template <sized_graph G, kernels_for<host_stream> Kernels, class Solve>
[[nodiscard]] planned_step<host_executor<Kernels>> make_planned(const G& graph, Kernels kernels,
                                                                std::span<const tensor_binding> bindings, Solve&& solve,
                                                                const planning_options& options = {},
                                                                const host_options& host = {}) {
  const auto make = [&](launch_plan plan, bool timing) {
    host_options chosen = host;
    if (timing) {
      chosen.timing = true;
      chosen.debug = host_debug::off;
      chosen.check_inputs = false;
      if (chosen.arena.size() < static_cast<std::uint64_t>(plan.arena_bytes())) chosen.arena = {};
    }
    auto executor = std::make_unique<host_executor<Kernels>>(std::move(plan), kernels, chosen);
    for (const tensor_binding& b : bindings) executor->bind(b.tensor, b.memory);
    return executor;
  };
  return profile_and_plan(graph, make, solve, options);
}

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/execute/impl/profile_and_plan.hpp"
#endif
