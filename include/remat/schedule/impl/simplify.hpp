// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/schedule/simplify.hpp"

#include <algorithm>
#include <cstddef>

#include "remat/core/detail/linkage.hpp"
#include "remat/core/id.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE schedule listed_order(const problem& p) {
  const flat_graph& g = p.graph();
  std::vector<std::uint32_t> left(g.num_tensors, 0);  // reads and writes still to come
  for (std::size_t t = 0; t < g.num_tensors; ++t)
    left[t] = static_cast<std::uint32_t>(g.producers[t].size() + g.consumers[t].size());
  schedule out;
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    out.compute(static_cast<op_id>(o));
    for (const auto* rows : {&g.inputs, &g.outputs})
      for (const std::uint32_t t : (*rows)[o])
        if (--left[t] == 0 && !g.final_output[t]) out.free(static_cast<tensor_id>(t));
  }
  return out;
}

REMAT_INLINE schedule schedule_computes(const flat_graph& g, std::span<const std::uint32_t> operations) {
  // Goes backwards. A tensor is live if a later step reads it, or it is a final output. While a tensor is live, each of
  // its writes is open until the run that supplies it has been met.
  std::vector<std::uint8_t> live(g.final_output);
  std::vector<std::uint8_t> open(g.outputs.values.size(), 0);
  std::vector<std::uint32_t> open_writes(g.num_tensors, 0);
  // Position in `producers.values` → position of the same write in `outputs.values`.
  std::vector<std::uint32_t> write_of(g.outputs.values.size());
  {
    std::vector<std::uint32_t> next(g.producers.begin.begin(), g.producers.begin.end() - 1);
    for (std::uint32_t w = 0; w < g.outputs.values.size(); ++w) write_of[next[g.outputs.values[w]]++] = w;
  }
  const auto make_live = [&](std::uint32_t t) {
    live[t] = 1;
    open_writes[t] = g.producers.begin[t + 1] - g.producers.begin[t];
    for (std::uint32_t i = g.producers.begin[t]; i < g.producers.begin[t + 1]; ++i) open[write_of[i]] = 1;
  };
  for (const std::uint32_t t : g.final_outputs) make_live(t);

  schedule plan;
  plan.steps.reserve(operations.size() * 2);
  for (std::size_t i = operations.size(); i-- > 0;) {
    const std::uint32_t o = operations[i];
    bool useful = g.has_effect(o);
    for (std::uint32_t w = g.outputs.begin[o]; w < g.outputs.begin[o + 1]; ++w) useful = useful || open[w];
    if (!useful) continue;
    for (std::uint32_t w = g.outputs.begin[o]; w < g.outputs.begin[o + 1]; ++w) {
      const std::uint32_t t = g.outputs.values[w];
      if (open[w]) {
        open[w] = 0;
        if (--open_writes[t] == 0) live[t] = 0;
      } else if (!live[t]) {
        plan.free(static_cast<tensor_id>(t));  // no later step reads this output
      }
    }
    for (const std::uint32_t t : g.inputs[o])
      if (!live[t]) {
        make_live(t);
        plan.free(static_cast<tensor_id>(t));
      }
    plan.compute(static_cast<op_id>(o));
  }
  std::reverse(plan.steps.begin(), plan.steps.end());
  return plan;
}

REMAT_INLINE std::vector<std::uint32_t> computes_of(const schedule& plan) {
  std::vector<std::uint32_t> operations;
  operations.reserve(plan.steps.size());
  for (const step& s : plan.steps)
    if (s.is_compute()) operations.push_back(static_cast<std::uint32_t>(index(s.operation())));
  return operations;
}

}  // namespace REMAT_NAMESPACE
