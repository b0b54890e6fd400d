// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat {

/// What can be wrong with a schedule.
enum class violation : std::uint8_t {
  none,
  no_such_operation,
  no_such_tensor,
  runs_twice,          ///< an operation that may run only once
  input_not_there,     ///< an operation reads a tensor that is not readable
  adds_twice,          ///< a second contribution of one operation to a tensor of several producers
  free_not_allocated,  ///< also: of a tensor that is always resident
  effect_missing,      ///< an operation without outputs did not run exactly once
  output_missing,      ///< a final output is not readable at the end
  over_budget
};

/// What the exact checker found. Times and counts cover the steps before the violation, if there is one.
struct check_report {
  violation what = violation::none;
  std::size_t at = 0;  ///< the step of the violation; steps.size(): at the end
  op_id operation{};   ///< whose step it is, where that means something
  tensor_id tensor{};  ///< which tensor, where that means something
  std::int64_t peak_bytes = 0;
  std::size_t peak_step = 0;  ///< the first compute at which memory is peak_bytes
  double time = 0;
  std::uint64_t computes = 0;
  std::uint64_t recomputes = 0;  ///< runs beyond the first of each operation

  [[nodiscard]] bool valid() const noexcept { return what == violation::none; }

  /// One line in words.
  [[nodiscard]] std::string message() const {
    const std::string o = "operation " + std::to_string(index(operation));
    const std::string t = "tensor " + std::to_string(index(tensor));
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
};

/// Ignores what happens at each step.
struct no_observer {
  constexpr void operator()(std::size_t, std::int64_t) const noexcept {}
};

/// Runs `steps` on the data-flow graph of `p` and says whether they are legal, exactly, in 64-bit integers.
///
/// It shares nothing with any solver but the problem's arrays. `observe(i, bytes)` is called for every legal step with
/// the memory while it runs (a compute: everything allocated, its outputs included, and its workspace; a free: what is
/// left after it). Bytes cannot overflow: a `problem` admits no sizes that could. The budget is judged last, so a
/// schedule that is otherwise illegal is reported as that.
/// O(steps + their reads and writes) time; O(operations + tensors) memory. Never throws on a bad schedule.
template <class Observer = no_observer>
[[nodiscard]] check_report check(const problem& p, std::span<const step> steps, Observer&& observe = {}) {
  const flat_graph& s = p.graph();
  check_report report;
  // A tensor of several producers is readable when each of them has run since its allocation. Each write has a slot
  // that holds the tensor's allocation number at the producer's last run: unequal numbers are old runs.
  struct tensor_state {
    std::uint32_t allocation = 0;  // counts allocations
    std::uint32_t written = 0;     // producers that have run since the last one
    bool allocated = false;
  };
  std::vector<tensor_state> state(s.num_tensors);
  std::vector<std::uint32_t> run_at(s.outputs.values.size(), 0);
  std::vector<std::uint32_t> runs(s.num_operations, 0);
  const auto readable = [&](std::uint32_t t) {
    return s.always_resident[t] || (state[t].allocated && state[t].written == s.producers[t].size());
  };
  const auto fail = [&](violation what, std::size_t at, op_id o, tensor_id t) {
    report.what = what;
    report.at = at;
    report.operation = o;
    report.tensor = t;
    return report;
  };

  std::int64_t memory = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].is_free()) {
      const tensor_id id = steps[i].tensor();
      const std::size_t t = index(id);
      if (t >= s.num_tensors) return fail(violation::no_such_tensor, i, {}, id);
      if (!state[t].allocated) return fail(violation::free_not_allocated, i, {}, id);
      state[t].allocated = false;
      memory -= s.bytes[t];
      observe(i, memory);
      continue;
    }
    const op_id id = steps[i].operation();
    const std::size_t o = index(id);
    if (o >= s.num_operations) return fail(violation::no_such_operation, i, id, {});
    if (runs[o] != 0 && s.once[o] == flat_graph::once_as_marked) return fail(violation::runs_twice, i, id, {});
    for (const std::uint32_t t : s.inputs[o])
      if (!readable(t)) return fail(violation::input_not_there, i, id, static_cast<tensor_id>(t));
    for (std::uint32_t w = s.outputs.begin[o]; w < s.outputs.begin[o + 1]; ++w) {
      const std::uint32_t t = s.outputs.values[w];
      tensor_state& now = state[t];
      if (!now.allocated) {
        now.allocated = true;
        now.written = 0;
        ++now.allocation;
        memory += s.bytes[t];
      }
      if (run_at[w] != now.allocation) {
        run_at[w] = now.allocation;
        ++now.written;
      } else if (s.producers[t].size() > 1) {
        return fail(violation::adds_twice, i, id, static_cast<tensor_id>(t));
      }
    }
    const std::int64_t running = memory + s.workspace[o];
    if (running > report.peak_bytes) {
      report.peak_bytes = running;
      report.peak_step = i;
    }
    report.time += s.time[o];
    ++report.computes;
    report.recomputes += runs[o] != 0;
    ++runs[o];
    observe(i, running);
  }
  for (std::uint32_t o = 0; o < s.num_operations; ++o)
    if (s.has_effect(o) && runs[o] != 1)
      return fail(violation::effect_missing, steps.size(), static_cast<op_id>(o), {});
  for (const std::uint32_t t : s.final_outputs)
    if (!readable(t)) return fail(violation::output_missing, steps.size(), {}, static_cast<tensor_id>(t));
  if (report.peak_bytes > p.budget()) return fail(violation::over_budget, report.peak_step, {}, {});
  return report;
}

/// \overload
template <class Observer = no_observer>
[[nodiscard]] check_report check(const problem& p, const schedule& plan, Observer&& observe = {}) {
  return check(p, std::span<const step>(plan.steps), observe);
}

}  // namespace remat
