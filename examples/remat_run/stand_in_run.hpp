// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/execute/host.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/memory/plan.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "shared/stand_in.hpp"

namespace remat_run {

struct run_options {
  std::uint32_t threads = 1;
  std::uint64_t steps = 1;  ///< training steps
  std::uint64_t seed = 1;   ///< of the first training step, and of the content of parameters and inputs
  shared::stand_in_options kernels{};
  remat::memory_plan_options memory{};
  std::optional<remat::host_link> link{};  ///< whose time the copies take; empty: that of the problem's
};

/// The result of some training steps under one schedule; outputs and effects are those of the last one.
struct run_result {
  std::int64_t peak_bytes = 0, arena_bytes = 0, host_peak_bytes = 0, host_arena_bytes = 0;
  std::uint64_t launches = 0, recomputes = 0, copies = 0, waits = 0;  ///< launches: the copies among them
  double time = 0, makespan = 0, critical_path = 0;                   ///< simulated, the cost model's unit
  double seconds = 0;                                                 ///< wall clock of the fastest training step
  /// The verified bytes of each final output; if the output is sampled, its value alone.
  std::map<std::uint32_t, std::vector<std::byte>> outputs{};
  std::vector<std::uint64_t> effects{};

  [[nodiscard]] bool same_results(const run_result& other) const {
    return outputs == other.outputs && effects == other.effects;
  }
};

/// One allocation of `virtual_memory`.
struct virtual_block {
  shared::virtual_memory& from;
  std::span<std::byte> bytes;
  virtual_block(shared::virtual_memory& m, std::size_t n)
      : from(m), bytes(static_cast<std::byte*>(m.allocate(n, alignof(std::max_align_t))), n) {}
  virtual_block(const virtual_block&) = delete;
  virtual_block& operator=(const virtual_block&) = delete;
  ~virtual_block() { from.deallocate(bytes.data(), bytes.size(), alignof(std::max_align_t)); }
};

/// Runs `plan` with stand-in kernels: with copies, on one thread for the computes and one for each direction. Only the
/// touched pages of the arenas and the parameters take memory.
/// Throws `remat::execution_error` or `remat::error` if a kernel finds a mistake.
[[nodiscard]] inline run_result run_stand_ins(const remat::training_graph& graph, const remat::problem& p,
                                              const remat::schedule& plan, const run_options& options = {}) {
  const auto unlimited = [&](const std::optional<remat::host_link>& link) {
    const remat::problem all = p.with_budget(remat::problem::unlimited);
    return link ? all.with_link(*link) : all;
  };
  const remat::problem within = unlimited(p.link());
  run_result out;
  const remat::check_report report = remat::check(within, plan);
  shared::stand_in_kernels kernels(graph, unlimited(options.link ? options.link : p.link()), options.kernels);
  remat::launch_options how;
  how.streams = plan.has_copies() ? 1 : options.threads;
  how.memory = options.memory;
  remat::launch_plan launches(graph, within, plan, how);
  out.host_peak_bytes = report.host_peak_bytes;
  out.host_arena_bytes = launches.host_arena_bytes();
  out.copies = report.copies;
  out.peak_bytes = report.peak_bytes;
  out.recomputes = report.recomputes;
  out.time = report.time;
  out.arena_bytes = launches.arena_bytes();
  out.launches = launches.size();
  out.makespan = launches.assignment().makespan;
  out.critical_path = launches.assignment().critical_path;
  for (std::size_t i = 0; i < launches.size(); ++i) out.waits += launches.waits(i).size();

  shared::virtual_memory memory;
  std::map<std::uint32_t, virtual_block> resident;
  remat::host_options on;
  on.memory = &memory;
  remat::host_executor run(std::move(launches), std::ref(kernels), on);
  for (std::uint32_t t = 0; t < graph.num_tensors(); ++t) {
    const auto id = static_cast<remat::tensor_id>(t);
    if (!run.plan().needs_binding(id)) continue;
    const virtual_block& b =
        resident.try_emplace(t, memory, static_cast<std::size_t>(run.plan().bytes(id))).first->second;
    kernels.fill(id, b.bytes, options.seed);
    run.bind(id, b.bytes);
  }
  out.seconds = std::numeric_limits<double>::infinity();
  for (std::uint64_t i = 0; i < options.steps; ++i) {
    kernels.forget_effects();
    out.seconds = std::min(out.seconds, run.run(options.seed + i).seconds);
  }
  for (const std::uint32_t t : p.graph().final_outputs) {
    const auto bytes = run.output(static_cast<remat::tensor_id>(t));
    kernels.verify(static_cast<remat::tensor_id>(t), bytes);
    const bool whole = bytes.size() <= static_cast<std::size_t>(options.kernels.whole);
    const auto kept = bytes.first(whole ? bytes.size() : std::min<std::size_t>(bytes.size(), 8));
    out.outputs[t].assign(kept.begin(), kept.end());
  }
  out.effects.assign(kernels.effects().begin(), kernels.effects().end());
  return out;
}

/// A copy of the graph with all sizes divided by `by` and rounded up to a word, so that whole tensors fit into memory.
/// Its times are those of `p`.
[[nodiscard]] inline remat::training_graph shrunk(const remat::training_graph& graph, const remat::problem& p,
                                                  std::int64_t by) {
  const auto less = [by](std::int64_t bytes) { return bytes == 0 ? 0 : (bytes / by / 8 + 1) * 8; };
  remat::training_graph out(graph.name());
  for (std::uint32_t t = 0; t < graph.num_tensors(); ++t) {
    const auto id = static_cast<remat::tensor_id>(t);
    out.add_tensor({std::string(graph.name(id)), less(graph.bytes(id)), graph.kind(id)});
  }
  for (std::uint32_t o = 0; o < graph.num_operations(); ++o) {
    const auto id = static_cast<remat::op_id>(o);
    remat::operation_spec spec;
    spec.name = graph.name(id);
    spec.phase = graph.phase(id);
    spec.inputs.assign(graph.inputs(id).begin(), graph.inputs(id).end());
    spec.outputs.assign(graph.outputs(id).begin(), graph.outputs(id).end());
    spec.seconds = p.graph().time[o];
    spec.workspace = less(graph.workspace(id));
    spec.deterministic = graph.deterministic(id);
    spec.recomputable = graph.recomputable(id);
    out.add_operation(std::move(spec));
  }
  for (const remat::tensor_id t : graph.final_outputs()) out.add_final_output(t);
  return out;
}

/// The listed order, nothing freed.
[[nodiscard]] inline remat::schedule listed_order_without_frees(const remat::problem& p) {
  remat::schedule out;
  for (std::uint32_t o = 0; o < p.graph().num_operations; ++o) out.compute(static_cast<remat::op_id>(o));
  return out;
}

}  // namespace remat_run
