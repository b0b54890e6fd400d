// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/bound/least_memory.hpp"

#include <algorithm>
#include <limits>

#include "remat/bound/detail/moment_cut.hpp"
#include "remat/core/detail/linkage.hpp"
#include "remat/core/detail/words.hpp"
#include "remat/graph/detail/label.hpp"
#include "remat/problem/detail/listed_order.hpp"

namespace REMAT_NAMESPACE {

REMAT_INLINE std::string least_memory_result::message(const std::string& name) const {
  const std::string who = detail::label(operation) + (name.empty() ? "" : " (" + name + ")");
  const std::string all = detail::count_of(bytes, "byte");
  switch (reason) {
    case memory_reason::none:
      return "nothing needs memory";
    case memory_reason::working_set:
      return who + " needs " + all + " for its inputs, outputs and workspace";
    case memory_reason::first_run:
      return who + " needs " + all + " when it first runs: " + detail::count_of(working_set, "byte") +
             " for its inputs, outputs and workspace, the rest for tensors that are read later and cannot be "
             "computed again";
    case memory_reason::end_of_step:
      return "the end of the step needs " + all + " for its outputs and for the last operation, at best " + who;
    case memory_reason::outputs:
      return "the end of the step needs " + all + " for its outputs";
  }
  return "unknown";
}

REMAT_INLINE least_memory_result largest_working_set(const problem& p) {
  const flat_graph& g = p.graph();
  least_memory_result best;
  std::int64_t outputs = 0;
  for (const std::uint32_t t : g.final_outputs) outputs += g.bytes[t];
  std::int64_t end = std::numeric_limits<std::int64_t>::max(), last_set = 0;
  std::uint32_t last = 0;
  for (std::uint32_t o = 0; o < g.num_operations; ++o) {
    if (!g.needed[o]) continue;
    const std::int64_t own = detail::working_set_bytes(g, o);
    if (own > best.bytes) best = {own, memory_reason::working_set, static_cast<op_id>(o), own, {}};
    bool can_be_last = g.has_effect(o);
    std::int64_t at_end = own;  // less the final outputs among it: each counts once
    for (const std::uint32_t t : g.outputs[o])
      if (g.final_output[t]) {
        can_be_last = true;
        at_end -= g.bytes[t];
      }
    for (const std::uint32_t t : g.inputs[o])
      if (g.final_output[t]) at_end -= g.bytes[t];
    at_end += outputs;
    if (can_be_last && at_end < end) {
      end = at_end;
      last = o;
      last_set = own;
    }
  }
  if (p.link()) {
    if (outputs > best.bytes)
      best = {outputs, memory_reason::outputs, static_cast<op_id>(g.producers[g.final_outputs[0]][0]), 0, {}};
  } else if (end != std::numeric_limits<std::int64_t>::max() && end > best.bytes) {
    best = {end, memory_reason::end_of_step, static_cast<op_id>(last), last_set, {}};
  }
  return best;
}

REMAT_INLINE least_memory_result least_memory_bound(const problem& p, const least_memory_options& options) {
  const flat_graph& g = p.graph();
  const run_clock clock(options.run);
  least_memory_result best = largest_working_set(p);
  if (p.link() || std::none_of(g.once.begin(), g.once.end(), [](std::uint8_t o) { return o != 0; })) return best;

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
    if (bytes > best.bytes)
      best = {bytes, memory_reason::first_run, static_cast<op_id>(o), cut.working_set(),
              cut.complete() ? cut.resident() : std::vector<tensor_id>{}};
  }
  return best;
}

}  // namespace REMAT_NAMESPACE
