// SPDX-License-Identifier: BSL-1.0
#pragma once

// Training steps for the fake CUDA runtime, and what they must compute.

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/core/id.hpp"
#include "remat/cost/models.hpp"
#include "remat/execute/cuda.cuh"
#include "remat/execute/launch_plan.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/lifetime.hpp"
#include "remat/schedule/schedule.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/copy_schedules.hpp"
#include "support/fake_cuda.hpp"
#include "support/random_graph.hpp"
#include "support/random_layout.hpp"
#include "support/schedules.hpp"

namespace remat::test::fake_cuda {

using bytes_vector = std::vector<std::byte>;

[[nodiscard]] inline std::uint64_t mix(std::uint64_t h, std::uint64_t x) {
  h = (h ^ x) * 0x9e3779b97f4a7c15u;
  return h ^ (h >> 29);
}

/// Writes to the outputs: every byte follows from the operation, its seed and all bytes that it reads. Contributions
/// are added byte by byte, which is the same in every order.
inline void hash_inputs(op_id o, std::uint64_t seed, std::span<const std::span<const std::byte>> inputs,
                        std::span<const std::span<std::byte>> outputs, std::span<const std::uint8_t> adds) {
  std::uint64_t h = mix(seed, index(o));
  for (const auto in : inputs) {
    h = mix(h, in.size());
    for (const std::byte b : in) h = mix(h, std::to_integer<std::uint64_t>(b));
  }
  for (std::size_t i = 0; i < outputs.size(); ++i)
    for (std::size_t j = 0; j < outputs[i].size(); ++j) {
      const auto value = static_cast<unsigned>(mix(mix(h, i), j) & 0xff);
      const auto old = adds[i] ? std::to_integer<unsigned>(outputs[i][j]) : 0U;
      outputs[i][j] = static_cast<std::byte>((value + old) & 0xff);
    }
}

/// Enqueues `hash_inputs`, and overwrites the workspace.
struct hash_kernels {
  const cuda_seed* device_seed = nullptr;  // if not null: the step's seed is read there, when the work runs
  std::size_t* runs = nullptr;             // if not null: counts the operations that have run

  void operator()(const cuda_call& c) const {
    std::vector<access> used{write_of(c.workspace)};
    for (const auto m : c.inputs) used.push_back(read_of(m));
    for (const auto m : c.outputs) used.push_back(write_of(m));
    if (device_seed != nullptr) used.push_back(read_of(std::as_bytes(std::span(device_seed->get(), 1))));
    enqueue(
        c.stream,
        [in = std::vector(c.inputs.begin(), c.inputs.end()), out = std::vector(c.outputs.begin(), c.outputs.end()),
         adds = std::vector(c.adds.begin(), c.adds.end()), o = c.operation, seed = c.seed, space = c.workspace,
         from = device_seed, count = runs] {
          std::fill(space.begin(), space.end(), std::byte{0x55});
          std::uint64_t step = 0;
          if (from != nullptr) std::memcpy(&step, from->get(), sizeof step);
          hash_inputs(o, from != nullptr ? kernel_seed(step, o) : seed, in, out, adds);
          if (count != nullptr) ++*count;
        },
        std::move(used), "operation " + std::to_string(index(c.operation)));
  }
};

/// A random graph, a random schedule of it (or the listed order), and addresses that reuse memory.
struct random_step {
  training_graph graph;
  problem p;
  schedule plan;
  lifetimes lives;
  placed where;

  explicit random_step(std::uint64_t seed, std::uint32_t operations = 12, bool recomputes = true)
      : graph(random_graph(seed, {.operations = operations})),
        p(graph, measured_cost{}),
        plan(recomputes ? random_schedule(p, seed).plan : listed_order(p)),
        lives(lifetimes_of(p, plan)),
        where(random_layout(lives, 1, seed)) {}

  [[nodiscard]] launch_plan launches(const launch_options& options) const {
    return launch_plan(graph, p, plan.steps, {where.offsets, where.arena_bytes, 1}, options);
  }
  /// The final outputs that operations write.
  [[nodiscard]] std::vector<tensor_id> outputs() const {
    std::vector<tensor_id> out;
    for (const tensor_id t : graph.final_outputs())
      if (!p.graph().always_resident[index(t)]) out.push_back(t);
    return out;
  }
  /// Binds every parameter and input to the first bytes of `memory`.
  template <class Executor>
  void bind(Executor& e, std::span<const std::byte> memory) const {
    for (std::uint32_t t = 0; t < graph.num_tensors(); ++t)
      if (p.graph().always_resident[t]) e.bind(static_cast<tensor_id>(t), memory);
  }
  /// The `outputs()` behind one another, where parameters and inputs begin as `content`, and the outputs, to which all
  /// operations add, as `sums`; empty: they are written anew.
  [[nodiscard]] bytes_vector expected(std::uint64_t seed, std::span<const std::byte> content,
                                      const bytes_vector& sums = {}) const {
    std::vector<bytes_vector> data(graph.num_tensors());
    std::vector<std::uint8_t> written(graph.num_tensors(), 0);
    for (std::uint32_t t = 0; t < data.size(); ++t) {
      data[t].resize(static_cast<std::size_t>(graph.bytes(static_cast<tensor_id>(t))));
      if (p.graph().always_resident[t]) std::copy_n(content.begin(), data[t].size(), data[t].begin());
    }
    std::size_t at = 0;
    for (const tensor_id t : outputs()) {
      if (sums.empty()) break;
      std::copy_n(sums.begin() + static_cast<std::ptrdiff_t>(at), data[index(t)].size(), data[index(t)].begin());
      at += data[index(t)].size();
      written[index(t)] = 1;
    }
    for (std::uint32_t o = 0; o < graph.num_operations(); ++o) {
      const auto id = static_cast<op_id>(o);
      std::vector<std::span<const std::byte>> in;
      std::vector<std::span<std::byte>> out;
      std::vector<std::uint8_t> adds;
      for (const tensor_id t : graph.inputs(id)) in.emplace_back(data[index(t)]);
      for (const tensor_id t : graph.outputs(id)) {
        out.emplace_back(data[index(t)]);
        adds.push_back(std::exchange(written[index(t)], std::uint8_t{1}));
      }
      hash_inputs(id, kernel_seed(seed, id), in, out, adds);
    }
    bytes_vector all;
    for (const tensor_id t : outputs()) all.insert(all.end(), data[index(t)].begin(), data[index(t)].end());
    return all;
  }
  /// Enqueues a copy of the `outputs()` to `to`.
  template <class Executor>
  void fetch(const Executor& e, cudaStream_t stream, bytes_vector& to) const {
    std::vector<std::span<const std::byte>> from;
    std::vector<access> used;
    for (const tensor_id t : outputs()) from.push_back(e.output(t));
    for (const auto m : from) used.push_back(read_of(m));
    enqueue(
        stream,
        [from, &to] {
          to.clear();
          for (const auto x : from) to.insert(to.end(), x.begin(), x.end());
        },
        std::move(used), "fetch");
  }
};

/// A random step with a link to the host, a random schedule with copies, and addresses that reuse memory on both sides.
struct copying_step : random_step {
  placed on_host;

  explicit copying_step(std::uint64_t seed, std::uint32_t operations = 12) : random_step(seed, operations) {
    p = p.with_link(random_link(p, seed));
    plan = random_copy_schedule(p, seed).plan;
    lives = lifetimes_of(p, plan);
    where = random_layout(lives, 1, seed);
    on_host = random_layout(lives.host, 1, seed);
  }
  [[nodiscard]] launch_plan launches(launch_options options = {}) const {
    options.host_layout = arena_layout(on_host.offsets, on_host.arena_bytes, 1);
    return random_step::launches(options);
  }
};

/// What a program did that ran without one of its waits.
struct waits_outcome {
  std::size_t reports = 0;
  std::vector<std::uint8_t> implied{};  // of each wait: its stream followed the event already
  std::string first{};
  bool refused = false;  // the capture was refused: a stream is outside of it, or not joined
};

/// Runs a program in which wait number `dropped` has no effect. It enqueues all its work; what is left at the end runs.
template <class Program>
[[nodiscard]] waits_outcome without_wait(std::uint64_t seed, std::size_t dropped, const Program& program) {
  reset(seed);
  the().expects_reports = true;
  the().drop_wait = dropped;
  waits_outcome out;
  try {
    program();
  } catch (const error&) {
    out.refused = true;
  }
  run_pending();
  out.reports = the().reports.size();
  if (out.reports != 0) out.first = the().reports.front();
  out.implied = the().wait_implied;
  the().reports.clear();
  return out;
}

/// How many waits some programs have, and how many of them are noticed when they are missing.
struct waits_count {
  std::size_t waits = 0, noticed = 0, implied = 0;

  /// Adds a program, `without(dropped)`, which must be right with all its waits.
  template <class Without>
  void add(const Without& without) {
    const waits_outcome whole = without(~std::size_t{0});
    REQUIRE_MESSAGE(whole.reports == 0, whole.first);
    REQUIRE(!whole.refused);
    for (std::size_t w = 0; w < whole.implied.size(); ++w, ++waits) {
      CAPTURE(w);
      const waits_outcome less = without(w);
      noticed += less.reports != 0 || less.refused;
      implied += whole.implied[w];
    }
  }
};

/// Memory for the `outputs()` of a step, behind one another.
class output_memory {
 public:
  output_memory(const random_step& s, std::byte begin) : step_(s), all_(filled(s, begin)) {}

  template <class Executor>
  void bind(Executor& e) const {
    std::size_t at = 0;
    for (const tensor_id t : step_.outputs()) {
      const auto bytes = static_cast<std::size_t>(step_.graph.bytes(t));
      e.bind_output(t, all_.bytes().subspan(at, bytes));
      at += bytes;
    }
  }
  [[nodiscard]] bytes_vector content() const { return peek(all_.bytes()); }

 private:
  static bytes_vector filled(const random_step& s, std::byte begin) {
    std::size_t bytes = 0;
    for (const tensor_id t : s.outputs()) bytes += static_cast<std::size_t>(s.graph.bytes(t));
    return bytes_vector(bytes, begin);
  }

  const random_step& step_;
  resident all_;
};

}  // namespace remat::test::fake_cuda
