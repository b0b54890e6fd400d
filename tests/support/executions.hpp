// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/detail/launch_calls.hpp"
#include "remat/execute/host.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/graph/concepts.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/schedule.hpp"
#include "shared/stand_in.hpp"
#include "support/random_graph.hpp"
#include "support/random_layout.hpp"
#include "support/schedules.hpp"

namespace remat::test {

/// Random graphs of small tensors and workspaces.
[[nodiscard]] inline random_graph_options graphs_of(std::uint32_t operations) {
  random_graph_options o;
  o.operations = operations;
  o.most_bytes = 100;
  o.most_workspace = 40;
  return o;
}

/// A random graph with a random schedule, which may be illegal, and stand-in kernels.
struct random_execution {
  training_graph graph;
  problem p;
  schedule plan;
  bool legal;
  shared::stand_in_kernels kernels;

  random_execution(std::uint64_t seed, std::uint32_t operations)
      : graph(random_graph(seed, graphs_of(operations))),
        p(graph, measured_cost{}),
        plan(random_schedule(p, seed).plan),
        legal(check(p, plan).valid()),
        kernels(graph, p) {}
  [[nodiscard]] launch_plan launches(std::uint32_t streams, std::uint64_t seed) const {
    const placed where = random_layout(lifetimes_of(p, plan), 8, seed);
    return launch_plan(graph, p, plan.steps, {where.offsets, where.arena_bytes, 8}, streams);
  }
};

/// What a training step leaves behind: the bytes of its outputs, and the hashes of operations without outputs.
struct left_behind {
  std::map<std::uint32_t, std::vector<std::byte>> outputs{};
  std::vector<std::uint64_t> effects{};
  friend bool operator==(const left_behind&, const left_behind&) = default;
};

/// Memory of the caller for all parameters and inputs, filled by the stand-in kernels.
class resident_memory {
 public:
  resident_memory(const problem& p, const launch_plan& plan, const shared::stand_in_kernels& kernels,
                  std::uint64_t seed) {
    for (std::uint32_t t = 0; t < p.graph().num_tensors; ++t) {
      if (!p.graph().always_resident[t]) continue;
      auto& memory = tensors_[t];
      memory.resize(static_cast<std::size_t>(plan.bytes(static_cast<tensor_id>(t))));
      kernels.fill(static_cast<tensor_id>(t), memory, seed);
    }
  }
  template <class Executor>
  void bind_all(Executor& run) const {
    for (const auto& [t, memory] : tensors_) run.bind(static_cast<tensor_id>(t), memory);
  }

 private:
  std::map<std::uint32_t, std::vector<std::byte>> tensors_;
};

/// The listed order, nothing freed, every tensor with bytes of its own.
[[nodiscard]] inline schedule unscheduled(const problem& p) {
  schedule plan;
  for (std::uint32_t o = 0; o < p.graph().num_operations; ++o) plan.compute(static_cast<op_id>(o));
  return plan;
}

template <class Kernels>
[[nodiscard]] left_behind collect(const problem& p, const host_executor<Kernels>& run,
                                  std::span<const std::uint64_t> effects) {
  left_behind out;
  for (const std::uint32_t t : p.graph().final_outputs) {
    const auto bytes = run.output(static_cast<tensor_id>(t));
    out.outputs[t].assign(bytes.begin(), bytes.end());
  }
  out.effects.assign(effects.begin(), effects.end());
  return out;
}

/// Runs `plan` once with stand-in kernels.
template <data_flow_graph G>
[[nodiscard]] left_behind execute(const G& graph, const problem& p, std::span<const step> steps, const placed& where,
                                  std::int64_t alignment, std::uint32_t threads, std::uint64_t step_seed,
                                  const host_options& options = {}) {
  shared::stand_in_kernels kernels(graph, p);
  launch_plan plan(graph, p, steps, {where.offsets, where.arena_bytes, alignment}, threads);
  const resident_memory memory(p, plan, kernels, step_seed);
  host_executor run(std::move(plan), std::ref(kernels), options);
  memory.bind_all(run);
  run.run(step_seed);
  return collect(p, run, kernels.effects());
}

}  // namespace remat::test
