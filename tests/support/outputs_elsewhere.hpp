// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/schedule.hpp"
#include "support/random_layout.hpp"

namespace remat::test {

/// Random final outputs to lie in the caller's memory: so many of a hundred bound, so many accumulated (of those that
/// no operation reads).
[[nodiscard]] inline launch_options some_outputs(const problem& p, std::uint64_t seed, std::uint32_t bound,
                                                 std::uint32_t accumulated) {
  std::mt19937_64 engine(seed);
  launch_options out;
  for (const std::uint32_t t : p.graph().final_outputs) {
    const auto draw = static_cast<std::uint32_t>(engine() % 100);
    if (p.graph().consumers[t].empty() && draw < accumulated)
      out.accumulated_outputs.push_back(static_cast<tensor_id>(t));
    else if (draw >= 100 - bound)
      out.bound_outputs.push_back(static_cast<tensor_id>(t));
  }
  std::shuffle(out.bound_outputs.begin(), out.bound_outputs.end(), engine);
  return out;
}

/// Memory of the caller for the outputs that a plan leaves to it, zero to begin with.
class own_outputs {
 public:
  explicit own_outputs(const launch_plan& plan) {
    for (std::uint32_t t = 0; t < plan.num_tensors(); ++t)
      if (const auto id = static_cast<tensor_id>(t); plan.is_bound_output(id))
        tensors_[t].resize(static_cast<std::size_t>(plan.bytes(id)));
  }
  template <class Executor>
  void bind_all(Executor& run) {
    for (auto& [t, memory] : tensors_) run.bind_output(static_cast<tensor_id>(t), memory);
  }
  [[nodiscard]] std::map<std::uint32_t, std::vector<std::byte>>& tensors() { return tensors_; }

 private:
  std::map<std::uint32_t, std::vector<std::byte>> tensors_;
};

/// The schedule with some final outputs freed and made again, where that is legal.
[[nodiscard]] inline schedule making_outputs_again(const problem& p, schedule plan, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  const auto& outputs = p.graph().final_outputs;
  for (std::uint32_t tries = 0; tries < 20 && !outputs.empty(); ++tries) {
    const std::uint32_t t = outputs[engine() % outputs.size()];
    std::vector<step> steps = plan.steps;
    std::size_t at = engine() % (steps.size() + 1);
    steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(at), step::free(static_cast<tensor_id>(t)));
    at += 1 + engine() % (steps.size() - at);
    for (const std::uint32_t o : p.graph().producers[t])
      steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(at++), step::compute(static_cast<op_id>(o)));
    if (check(p, steps).valid()) plan.steps = std::move(steps);
  }
  return plan;
}

/// A random layout of what is left in the arena.
struct placed_elsewhere {
  launch_options options;
  placed where;

  placed_elsewhere(const problem& p, const schedule& plan, launch_options choice, std::uint32_t streams,
                   std::uint64_t seed)
      : options(std::move(choice)), where(place(p, plan, options, seed)) {
    options.streams = streams;
  }
  [[nodiscard]] arena_layout layout() const { return {where.offsets, where.arena_bytes, 8}; }

 private:
  static placed place(const problem& p, const schedule& plan, const launch_options& options, std::uint64_t seed) {
    lifetimes lives = lifetimes_of(p, plan);
    const std::vector<tensor_id> elsewhere = options.outputs_elsewhere();
    for (allocation& x : lives.allocations)
      if (!x.is_workspace() && std::count(elsewhere.begin(), elsewhere.end(), static_cast<tensor_id>(x.tensor)) != 0)
        x.bytes = 0;
    return random_layout(lives, 8, seed);
  }
};

}  // namespace remat::test
