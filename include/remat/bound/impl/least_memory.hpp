// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/bound/least_memory.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/core/detail/linkage.hpp"

namespace remat {

REMAT_INLINE std::string least_memory_result::message(const std::string& name) const {
  const std::string who = "operation " + std::to_string(index(operation)) + (name.empty() ? "" : " (" + name + ")");
  const std::string all = std::to_string(bytes) + " bytes";
  switch (reason) {
    case memory_reason::none:
      return "nothing needs memory";
    case memory_reason::working_set:
      return who + " needs " + all + " for its inputs, outputs and workspace";
    case memory_reason::first_run:
      return who + " needs " + all + " when it first runs: " + std::to_string(working_set) +
             " for its inputs, outputs and workspace, the rest for tensors that are wanted later and cannot be made "
             "again";
    case memory_reason::end_of_step:
      return "the end of the step needs " + all + " for its outputs and for the last operation, at best " + who;
  }
  return "unknown";
}

REMAT_INLINE least_memory_result largest_working_set(const problem& p) {
  const flat_graph& g = p.graph();
  least_memory_result best;
  const auto take = [&](std::int64_t bytes, memory_reason reason, std::uint32_t o, std::int64_t working_set) {
    if (bytes <= best.bytes) return;
    best.bytes = bytes;
    best.reason = reason;
    best.operation = static_cast<op_id>(o);
    best.working_set = working_set;
  };
  std::int64_t outputs = 0;
  for (const std::uint32_t t : g.final_outputs) outputs += g.bytes[t];
  std::int64_t end = std::numeric_limits<std::int64_t>::max(), last_set = 0;
  std::uint32_t last = 0;
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    if (!g.needed[o]) continue;
    const std::int64_t own = detail::working_set_bytes(g, o);
    take(own, memory_reason::working_set, o, own);
    bool can_be_last = g.has_effect(o);
    std::int64_t at_end = outputs + own;
    for (const std::uint32_t t : g.outputs[o])
      if (g.final_output[t]) {
        can_be_last = true;
        at_end -= g.bytes[t];
      }
    for (const std::uint32_t t : g.inputs[o])
      if (g.final_output[t]) at_end -= g.bytes[t];
    if (can_be_last && at_end < end) {
      end = at_end;
      last = o;
      last_set = own;
    }
  }
  if (end != std::numeric_limits<std::int64_t>::max()) take(end, memory_reason::end_of_step, last, last_set);
  return best;
}

REMAT_INLINE least_memory_result least_memory_bound(const problem& p, const least_memory_options& options) {
  const flat_graph& g = p.graph();
  const run_clock clock(options.run);
  least_memory_result best = largest_working_set(p);
  if (std::none_of(g.once.begin(), g.once.end(), [](std::uint8_t o) { return o != 0; })) return best;

  const auto stuck = [&](std::uint32_t t) {
    return std::any_of(g.producers[t].begin(), g.producers[t].end(), [&](std::uint32_t o) { return g.once[o] != 0; });
  };
  const std::vector<std::int64_t> upper =
      detail::listed_order_sums<std::int64_t>(g, [&](std::uint32_t t) { return g.bytes[t]; });
  const std::vector<std::int64_t> held =
      detail::listed_order_sums<std::int64_t>(g, [&](std::uint32_t t) { return stuck(t) ? g.bytes[t] : 0; });
  std::vector<std::int64_t> guess(g.num_operations, 0);
  std::vector<std::uint32_t> order;
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    if (!g.needed[o] || upper[o] + g.workspace[o] <= best.bytes) continue;
    order.push_back(o);
    guess[o] = held[o] + detail::working_set_bytes(g, o);
    for (const auto* rows : {&g.inputs, &g.outputs})
      for (const std::uint32_t t : (*rows)[o])
        if (stuck(t)) guess[o] -= g.bytes[t];
  }
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return guess[a] > guess[b]; });

  detail::moment_cut cut(g);
  std::uint32_t tried = 0;
  for (const std::uint32_t o : order) {
    if (upper[o] + g.workspace[o] <= best.bytes) continue;
    if (tried++ >= options.moments || clock.should_stop()) break;
    cut.at(o);
    if (!cut.has_unrepeatable()) continue;
    const std::int64_t bytes = cut.least_bytes([&] { return clock.should_stop(); }) + cut.working_set();
    if (bytes <= best.bytes) continue;
    best.bytes = bytes;
    best.reason = memory_reason::first_run;
    best.operation = static_cast<op_id>(o);
    best.working_set = cut.working_set();
    best.also_resident = cut.complete() ? cut.resident() : std::vector<tensor_id>{};
  }
  return best;
}

}  // namespace remat
