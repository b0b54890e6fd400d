// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "remat/cost/models.hpp"
#include "remat/execute/launch_plan.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/schedule.hpp"
#include "shared/stand_in.hpp"
#include "support/copy_schedules.hpp"
#include "support/executions.hpp"
#include "support/outputs_elsewhere.hpp"
#include "support/random_graph.hpp"
#include "support/random_layout.hpp"

namespace remat::test {

/// A random graph with a link, a random legal schedule with copies, random addresses that reuse much memory on the
/// device and on the host, and stand-in kernels. With `elsewhere`, some final outputs lie in the caller's memory.
struct copying_execution {
  training_graph graph;
  problem p;
  schedule plan;
  shared::stand_in_kernels kernels;
  placed_elsewhere device;
  placed host;

  copying_execution(std::uint64_t seed, std::uint32_t operations, bool elsewhere = false)
      : graph(random_graph(seed, graphs_of(operations))),
        p(with_link(problem(graph, measured_cost{}), seed)),
        plan(random_copy_schedule(p, seed).plan),
        kernels(graph, p),
        device(p, plan, elsewhere ? some_outputs(p, seed, 70, 0) : launch_options{}, 1, seed),
        host(random_layout(lifetimes_of(p, plan).host, 8, seed)) {}

  [[nodiscard]] launch_plan launches() const {
    launch_options options = device.options;
    options.host_layout = arena_layout(host.offsets, host.arena_bytes, 8);
    return launch_plan(graph, p, plan.steps, device.layout(), options);
  }

 private:
  static problem with_link(const problem& p, std::uint64_t seed) { return p.with_link(random_link(p, seed)); }
};

/// Overwrites all bytes that hold nothing, so that whoever needs them too early or too late is wrong: each compute
/// those of the device's arena, each copy out those of the host's. Then it lets `Kernels` compute or copy.
///
/// By the rules of the engines that is allowed: computes and copies that use these bytes, by the list before or later,
/// are not running. The computes must come in their order, and so must the copies out.
template <class Kernels>
class poisoning_kernels {
 public:
  /// `pauses`: the threads pause at random, so that more orders come about.
  poisoning_kernels(Kernels& kernels, const launch_plan& plan, bool pauses) : kernels_(kernels), pauses_(pauses) {
    const lifetimes& lives = plan.lives();
    for (const launch& l : plan.launches()) {
      std::vector<std::uint8_t> used(size(l.is_copy() ? plan.host_arena_bytes() : plan.arena_bytes()), 0);
      const auto mark = [&](const allocation& x, std::int64_t offset) {
        if (x.first <= l.step && l.step < x.last)
          std::fill_n(used.begin() + static_cast<std::ptrdiff_t>(offset), size(x.bytes), std::uint8_t{1});
      };
      if (l.kind() == step_kind::compute) {
        for (std::uint32_t a = 0; a < lives.allocations.size(); ++a)
          if (plan.is_in_arena(a)) mark(lives.allocations[a], plan.offsets()[a]);
        free_on_device_.push_back(unused(used));
      } else if (l.kind() == step_kind::offload) {
        for (std::uint32_t a = 0; a < lives.host.size(); ++a) mark(lives.host[a], plan.host_offsets()[a]);
        free_on_host_.push_back(unused(used));
      }
    }
  }

  /// Call it before each training step.
  void begin(std::span<std::byte> arena, std::span<std::byte> host_arena) {
    arena_ = arena;
    host_arena_ = host_arena;
    computes_ = offloads_ = 0;
  }

  void operator()(const host_call& c) {
    pause(0);
    fill(arena_, free_on_device_[computes_++]);
    kernels_(c);
  }
  void copy(const host_copy& c) {
    const bool out = c.kind == step_kind::offload;
    pause(out ? 1 : 2);
    if (out) fill(host_arena_, free_on_host_[offloads_++]);
    kernels_.copy(c);
  }

 private:
  using ranges = std::vector<std::pair<std::size_t, std::size_t>>;  // first byte, number

  static std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }
  static ranges unused(std::span<const std::uint8_t> used) {
    ranges out;
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (used[i] != 0) continue;
      if (i == 0 || used[i - 1] != 0) out.emplace_back(i, 0);
      ++out.back().second;
    }
    return out;
  }
  static void fill(std::span<std::byte> arena, const ranges& which) {
    for (const auto& [first, count] : which) {
      const auto part = arena.subspan(first, count);
      std::fill(part.begin(), part.end(), std::byte{0xa7});
    }
  }
  void pause(std::size_t thread) {
    if (!pauses_) return;
    for (std::uint64_t n = engines_[thread]() % 4; n > 0; --n) std::this_thread::yield();
  }

  Kernels& kernels_;
  bool pauses_;
  std::vector<ranges> free_on_device_;  // of each compute
  std::vector<ranges> free_on_host_;    // of each copy out
  std::span<std::byte> arena_, host_arena_;
  std::size_t computes_ = 0, offloads_ = 0;  // so far
  std::array<std::mt19937_64, 3> engines_{std::mt19937_64(1), std::mt19937_64(2), std::mt19937_64(3)};
};

}  // namespace remat::test
