// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "remat/bound/moment_cut.hpp"
#include "remat/core/control.hpp"
#include "remat/core/id.hpp"
#include "remat/problem/problem.hpp"

namespace remat {

/// Why no schedule has a lower peak.
enum class memory_reason : std::uint8_t {
  none,         ///< nothing needs memory
  working_set,  ///< an operation's inputs, outputs and workspace
  first_run,    ///< … and what must stay resident beside them at its first run, because it cannot be made again
  end_of_step   ///< the final outputs, and what the last operation that runs needs beside them
};

/// A proven lower bound on the peak of every schedule, with its reason.
struct least_memory_result {
  std::int64_t bytes = 0;
  memory_reason reason = memory_reason::none;
  op_id operation{};                       ///< whose run it is; at the end of the step: the last one, in the best case
  std::int64_t working_set = 0;            ///< of that operation
  std::vector<tensor_id> also_resident{};  ///< beside the working set, where the reason is `first_run`

  /// One line in words, for instance why a budget is too small. `name`: of `operation`, if known.
  [[nodiscard]] std::string message(const std::string& name = {}) const {
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
};

struct least_memory_options {
  std::uint32_t moments = 64;  ///< first runs that are looked at where something may not run twice
  run_control run{};
};

/// The largest of the memory bounds that cost linear time: every needed operation's working set, and the end of the
/// step.
///
/// At the end all final outputs are resident. The last compute of a schedule without idle computes (leaving those out
/// never raises a peak) makes a final output or has an effect; while it runs, all final outputs are allocated, and its
/// own inputs, outputs and workspace too. O(operations + reads and writes).
[[nodiscard]] inline least_memory_result largest_working_set(const problem& p) {
  const flat_graph& s = p.graph();
  least_memory_result best;
  const auto take = [&](std::int64_t bytes, memory_reason reason, std::uint32_t o, std::int64_t working_set) {
    if (bytes <= best.bytes) return;
    best.bytes = bytes;
    best.reason = reason;
    best.operation = static_cast<op_id>(o);
    best.working_set = working_set;
  };
  std::int64_t outputs = 0;
  for (const std::uint32_t t : s.final_outputs) outputs += s.bytes[t];
  std::int64_t end = std::numeric_limits<std::int64_t>::max(), last_set = 0;
  std::uint32_t last = 0;
  for (std::uint32_t o = 0; o < s.num_operations; ++o) {
    if (!s.needed[o]) continue;
    const std::int64_t own = working_set_bytes(s, o);
    take(own, memory_reason::working_set, o, own);
    bool can_be_last = s.has_effect(o);
    std::int64_t at_end = outputs + own;
    for (const std::uint32_t t : s.outputs[o])
      if (s.final_output[t]) {
        can_be_last = true;
        at_end -= s.bytes[t];
      }
    for (const std::uint32_t t : s.inputs[o])
      if (s.final_output[t]) at_end -= s.bytes[t];
    if (can_be_last && at_end < end) {
      end = at_end;
      last = o;
      last_set = own;
    }
  }
  if (end != std::numeric_limits<std::int64_t>::max()) take(end, memory_reason::end_of_step, last, last_set);
  return best;
}

/// A lower bound on the peak of every schedule, whatever time it takes: no budget below it can be met.
///
/// The largest of `largest_working_set` and, where some operations must not run twice, of the least memory in use at
/// the first runs of operations (a minimum cut each, `moment_cut::least_bytes`). First runs are tried in the order of
/// what the listed order holds there that cannot be made again; those that the listed order itself gets through with no
/// more than the bound so far are passed over, so the bound is the largest of its kind unless `moments` or the clock
/// ends the search. A shorter search only makes it smaller. O(operations + reads and writes), and one maximum flow for
/// each first run that is tried. Polls before each of them.
[[nodiscard]] inline least_memory_result least_memory_bound(const problem& p,
                                                            const least_memory_options& options = {}) {
  const flat_graph& s = p.graph();
  const run_clock clock(options.run);
  least_memory_result best = largest_working_set(p);
  if (std::none_of(s.once.begin(), s.once.end(), [](std::uint8_t o) { return o != 0; })) return best;

  const auto stuck = [&](std::uint32_t t) {
    return std::any_of(s.producers[t].begin(), s.producers[t].end(), [&](std::uint32_t o) { return s.once[o] != 0; });
  };
  const std::vector<std::int64_t> upper =
      listed_order_sums<std::int64_t>(s, [&](std::uint32_t t) { return s.bytes[t]; });
  const std::vector<std::int64_t> held =
      listed_order_sums<std::int64_t>(s, [&](std::uint32_t t) { return stuck(t) ? s.bytes[t] : 0; });
  std::vector<std::int64_t> guess(s.num_operations, 0);
  std::vector<std::uint32_t> order;
  for (std::uint32_t o = 0; o < s.num_operations; ++o) {
    if (!s.needed[o] || upper[o] + s.workspace[o] <= best.bytes) continue;
    order.push_back(o);
    guess[o] = held[o] + working_set_bytes(s, o);
    for (const auto* rows : {&s.inputs, &s.outputs})
      for (const std::uint32_t t : (*rows)[o])
        if (stuck(t)) guess[o] -= s.bytes[t];
  }
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return guess[a] > guess[b]; });

  moment_cut cut(s);
  std::uint32_t tried = 0;
  for (const std::uint32_t o : order) {
    if (upper[o] + s.workspace[o] <= best.bytes) continue;
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
