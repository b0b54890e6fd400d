// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat {

/// The schedule of a sequence of computes: computes whose results nobody reads are left out, and every tensor is freed
/// right after its last use before the operation that makes it runs again.
///
/// No schedule with the same computes in the same order has less memory in use at any of them. A sequence that is not
/// legal (an input that was never made) gives a schedule that `check` refuses.
/// O(reads and writes of the sequence) time.
[[nodiscard]] inline schedule schedule_computes(const flat_graph& s, std::span<const std::uint32_t> operations) {
  // Backwards: a tensor is live where a later read, or the end, wants it; each of its writes is open until the run that
  // supplies it has been met.
  std::vector<std::uint8_t> live(s.final_output);
  std::vector<std::uint8_t> open(s.outputs.values.size(), 0);
  std::vector<std::uint32_t> open_writes(s.num_tensors, 0);
  // The slot of write (o, t) within outputs.values, found through the producers' rows in the same order.
  std::vector<std::uint32_t> slots(s.outputs.values.size());
  {
    std::vector<std::uint32_t> next(s.producers.begin.begin(), s.producers.begin.end() - 1);
    for (std::uint32_t w = 0; w < s.outputs.values.size(); ++w) slots[next[s.outputs.values[w]]++] = w;
  }
  const auto want = [&](std::uint32_t t) {
    live[t] = 1;
    open_writes[t] = s.producers.begin[t + 1] - s.producers.begin[t];
    for (std::uint32_t w = s.producers.begin[t]; w < s.producers.begin[t + 1]; ++w) open[slots[w]] = 1;
  };
  for (const std::uint32_t t : s.final_outputs) want(t);

  schedule plan;
  plan.steps.reserve(operations.size() * 2);
  for (std::size_t i = operations.size(); i-- > 0;) {
    const std::uint32_t o = operations[i];
    bool useful = s.has_effect(o);
    for (std::uint32_t w = s.outputs.begin[o]; w < s.outputs.begin[o + 1]; ++w) useful = useful || open[w];
    if (!useful) continue;
    for (std::uint32_t w = s.outputs.begin[o]; w < s.outputs.begin[o + 1]; ++w) {
      const std::uint32_t t = s.outputs.values[w];
      if (open[w]) {
        open[w] = 0;
        if (--open_writes[t] == 0) live[t] = 0;
      } else if (!live[t]) {
        plan.free(static_cast<tensor_id>(t));  // an output that this run makes in vain
      }
    }
    for (const std::uint32_t t : s.inputs[o])
      if (!live[t]) {
        want(t);
        plan.free(static_cast<tensor_id>(t));
      }
    plan.compute(static_cast<op_id>(o));
  }
  std::reverse(plan.steps.begin(), plan.steps.end());
  return plan;
}

/// \overload
[[nodiscard]] inline schedule schedule_computes(const problem& p, std::span<const std::uint32_t> operations) {
  return schedule_computes(p.graph(), operations);
}

/// The operations that a schedule runs, in order.
[[nodiscard]] inline std::vector<std::uint32_t> computes_of(const schedule& plan) {
  std::vector<std::uint32_t> operations;
  operations.reserve(plan.steps.size());
  for (const step& s : plan.steps)
    if (s.is_compute()) operations.push_back(static_cast<std::uint32_t>(index(s.operation())));
  return operations;
}

/// The same computes with frees as early as they can be and without computes whose results nobody reads: never a higher
/// peak, never more time. Precondition: `plan` is legal. O(reads and writes of its steps) time.
[[nodiscard]] inline schedule simplify(const problem& p, const schedule& plan) {
  return schedule_computes(p, computes_of(plan));
}

}  // namespace remat
