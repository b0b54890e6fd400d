// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/schedule/check.hpp"

#include <vector>

#include "remat/core/detail/linkage.hpp"
#include "remat/graph/detail/label.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE std::string check_report::message() const {
  const std::string o = detail::label(operation), t = detail::label(tensor);
  const std::string step = "step " + std::to_string(at) + ": ";
  switch (what) {
    case violation::none:
      return "valid";
    case violation::no_such_operation:
      return step + "there is no " + o;
    case violation::no_such_tensor:
      return step + "there is no " + t;
    case violation::runs_twice:
      return step + o + " may run only once";
    case violation::input_not_there:
      return step + o + " reads " + t + ", which is not there";
    case violation::adds_twice:
      return step + o + " adds to " + t + " twice";
    case violation::free_not_allocated:
      return step + "free of " + t + ", which is not allocated";
    case violation::effect_missing:
      return "at the end: " + o + ", which has no outputs, did not run exactly once";
    case violation::output_missing:
      return "at the end: final output " + t + " is not there";
    case violation::over_budget:
      return "the peak, " + std::to_string(peak_bytes) + " bytes, is over the budget";
  }
  return "unknown";
}

namespace detail::schedule_checking {

/// Runs the steps of a schedule one by one.
class checker {
 public:
  explicit checker(const problem& p)
      : graph_(p.graph()),
        budget_(p.budget()),
        tensors_(graph_.num_tensors),
        run_at_(graph_.outputs.values.size(), 0),
        runs_(graph_.num_operations, 0) {
    for (std::size_t t = 0; t < tensors_.size(); ++t) tensors_[t].unreadable = graph_.always_resident[t] == 0;
  }

  /// Runs all `steps`, and calls `observe(i, bytes)`, if it is set, after each legal one.
  check_report run(std::span<const step> steps, const std::function<void(std::size_t, std::int64_t)>& observe) {
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!(steps[i].is_free() ? run_free(i, steps[i].tensor()) : run_compute(i, steps[i].operation()))) return report_;
      if (observe) observe(i, memory_at_step_);
    }
    finish(steps.size());
    return report_;
  }

 private:
  struct tensor_state {
    std::uint32_t allocation = 0;  // how often it has been allocated
    std::uint32_t unreadable = 1;  // producers that have not run since; 1 also while it is not allocated
    bool allocated = false;
  };

  bool fail(violation what, std::size_t at, op_id o, tensor_id t) {
    report_.what = what;
    report_.at = at;
    report_.operation = o;
    report_.tensor = t;
    return false;
  }

  bool run_free(std::size_t i, tensor_id id) {
    const std::size_t t = index(id);
    if (t >= graph_.num_tensors) return fail(violation::no_such_tensor, i, {}, id);
    if (!tensors_[t].allocated) return fail(violation::free_not_allocated, i, {}, id);
    tensors_[t].allocated = false;
    tensors_[t].unreadable = 1;
    memory_ -= graph_.bytes[t];
    memory_at_step_ = memory_;
    return true;
  }

  bool run_compute(std::size_t i, op_id id) {
    const flat_graph& g = graph_;
    const std::size_t o = index(id);
    if (o >= g.num_operations) return fail(violation::no_such_operation, i, id, {});
    if (runs_[o] != 0 && g.once[o] == flat_graph::once_as_marked) return fail(violation::runs_twice, i, id, {});
    for (const std::uint32_t t : g.inputs[o])
      if (tensors_[t].unreadable != 0) return fail(violation::input_not_there, i, id, static_cast<tensor_id>(t));
    for (std::uint32_t w = g.outputs.begin[o]; w < g.outputs.begin[o + 1]; ++w) {
      const std::uint32_t t = g.outputs.values[w];
      tensor_state& now = tensors_[t];
      if (!now.allocated) {
        now.allocated = true;
        now.unreadable = static_cast<std::uint32_t>(g.producers[t].size());
        ++now.allocation;
        memory_ += g.bytes[t];
      }
      if (run_at_[w] != now.allocation) {
        run_at_[w] = now.allocation;
        --now.unreadable;
      } else if (g.producers[t].size() > 1) {
        return fail(violation::adds_twice, i, id, static_cast<tensor_id>(t));
      }
    }
    memory_at_step_ = memory_ + g.workspace[o];
    if (memory_at_step_ > report_.peak_bytes) {
      report_.peak_bytes = memory_at_step_;
      report_.peak_step = i;
    }
    report_.time += g.time[o];
    ++report_.computes;
    report_.recomputes += runs_[o] != 0;
    ++runs_[o];
    return true;
  }

  /// Judges the end of `num_steps` legal steps, and the budget.
  void finish(std::size_t num_steps) {
    for (std::uint32_t o = 0; o < graph_.num_operations; ++o)
      if (graph_.has_effect(o) && runs_[o] != 1) {
        fail(violation::effect_missing, num_steps, static_cast<op_id>(o), {});
        return;
      }
    for (const std::uint32_t t : graph_.final_outputs)
      if (tensors_[t].unreadable != 0) {
        fail(violation::output_missing, num_steps, {}, static_cast<tensor_id>(t));
        return;
      }
    if (report_.peak_bytes > budget_) fail(violation::over_budget, report_.peak_step, {}, {});
  }

  const flat_graph& graph_;
  std::int64_t budget_;
  check_report report_;
  std::int64_t memory_ = 0;          // of all allocated tensors
  std::int64_t memory_at_step_ = 0;  // with the workspace of the step
  std::vector<tensor_state> tensors_;
  // One entry for each write of `outputs.values`: the allocation of the tensor at the last run of the producer. A
  // producer has run since the tensor was allocated if this number is the tensor's present one.
  std::vector<std::uint32_t> run_at_;
  std::vector<std::uint32_t> runs_;  // of an operation
};

}  // namespace detail::schedule_checking

REMAT_INLINE check_report check(const problem& p, std::span<const step> steps,
                                const std::function<void(std::size_t, std::int64_t)>& observe) {
  return detail::schedule_checking::checker(p).run(steps, observe);
}

}  // namespace REMAT_NAMESPACE
