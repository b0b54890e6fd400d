// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat {

/// The ways in which a schedule can be wrong.
enum class violation : std::uint8_t {
  none,
  no_such_operation,
  no_such_tensor,
  runs_twice,          ///< an operation that may run only once runs again
  input_not_there,     ///< an operation reads a tensor that is not readable
  adds_twice,          ///< an operation contributes twice to one allocation of a tensor of several producers
  free_not_allocated,  ///< a free of a tensor that is not allocated, or is always resident
  effect_missing,      ///< an operation without outputs did not run exactly once
  output_missing,      ///< a final output is not readable at the end
  over_budget          ///< the peak exceeds the budget
};

/// The verdict of the exact checker. Times and counts cover the steps before the violation, if there is one.
/// Trivially copyable: it is cheap to return and to keep.
struct check_report {
  violation what = violation::none;  ///< the first rule that the schedule breaks; `none` for a valid schedule
  std::size_t at = 0;                ///< the step of the violation; the number of steps for a violation at the end
  op_id operation{};                 ///< the operation of that step, where the violation has one
  tensor_id tensor{};                ///< the tensor that is wrong, where the violation has one
  std::int64_t peak_bytes = 0;       ///< the largest memory while a compute runs
  std::size_t peak_step = 0;         ///< the first compute at which memory is `peak_bytes`
  double time = 0;                   ///< of all computes, in the cost model's unit
  std::uint64_t computes = 0;        ///< runs of operations
  std::uint64_t recomputes = 0;      ///< runs beyond the first of each operation

  /// Returns true for a schedule that is legal and within the budget.
  [[nodiscard]] bool valid() const noexcept { return what == violation::none; }

  /// Returns the verdict in words, in one line.
  [[nodiscard]] std::string message() const;
};

/// An observer that ignores every step.
struct no_observer {
  /// Does nothing.
  constexpr void operator()(std::size_t, std::int64_t) const noexcept {}
};

namespace detail::schedule_checking {

/// Runs the steps of a schedule one by one. See `check`.
class checker {
 public:
  explicit checker(const problem& p);

  /// Runs step number `i`. Returns false where the step is not legal: the report then says why.
  bool run(std::size_t i, step x);

  /// Runs all `steps`, without a look in between. Returns false at the first that is not legal.
  bool run_all(std::span<const step> steps);

  /// Judges the end of a schedule of `num_steps` legal steps, and the budget.
  void finish(std::size_t num_steps);

  /// Bytes in use at the last step: while it runs for a compute, after it for a free.
  [[nodiscard]] std::int64_t memory() const noexcept { return memory_at_step_; }
  [[nodiscard]] const check_report& report() const noexcept { return report_; }

 private:
  struct tensor_state {
    std::uint32_t allocation = 0;  // how often it has been allocated
    std::uint32_t written = 0;     // producers that have run since the last allocation
    bool allocated = false;
  };

  bool run_one(std::size_t i, step x);
  bool run_free(std::size_t i, tensor_id id);
  bool run_compute(std::size_t i, op_id id);
  bool fail(violation what, std::size_t at, op_id o, tensor_id t);
  [[nodiscard]] bool readable(std::uint32_t t) const {
    const tensor_state& now = tensors_[t];
    return graph_.always_resident[t] || (now.allocated && now.written == graph_.producers[t].size());
  }

  const flat_graph& graph_;
  std::int64_t budget_;
  check_report report_;
  std::int64_t memory_ = 0;          // of all allocated tensors
  std::int64_t memory_at_step_ = 0;  // with the workspace of the step
  std::vector<tensor_state> tensors_;
  // One entry for each write of `outputs.values`: the allocation of the tensor at the last run of the producer. A
  // producer has run since the tensor was allocated when this number is the tensor's present one.
  std::vector<std::uint32_t> run_at_;
  std::vector<std::uint32_t> runs_;  // of an operation
};

}  // namespace detail::schedule_checking

/// Runs `steps` on the graph of `p` and reports whether they are legal and within the budget. Exact: in 64-bit
/// integers, which cannot overflow, since a `problem` admits no sizes for which they could.
///
/// The checker shares nothing with any solver but the arrays of the problem. It calls `observe(i, bytes)` for every
/// legal step. `bytes` is the memory while a compute runs (all allocated tensors, its outputs included, and its
/// workspace), or the memory after a free. The budget is judged last: a schedule that is illegal and over the budget is
/// reported as illegal.
/// O(steps + their reads and writes) time; O(operations + writes + tensors) memory. Never throws for a bad schedule.
///
///     const check_report report = check(p, plan);
///     if (!report.valid()) std::cerr << report.message();
template <class Observer = no_observer>
[[nodiscard]] check_report check(const problem& p, std::span<const step> steps, Observer&& observe = {}) {
  detail::schedule_checking::checker checker(p);
  if constexpr (std::is_same_v<std::remove_cvref_t<Observer>, no_observer>) {
    if (!checker.run_all(steps)) return checker.report();
  } else {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!checker.run(i, steps[i])) return checker.report();
      observe(i, checker.memory());
    }
  }
  checker.finish(steps.size());
  return checker.report();
}

/// \overload
template <class Observer = no_observer>
[[nodiscard]] check_report check(const problem& p, const schedule& plan, Observer&& observe = {}) {
  return check(p, std::span<const step>(plan.steps), observe);
}

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/schedule/impl/check.hpp"
#endif
