// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"

namespace remat::test {

/// What random graphs are made of. Probabilities are in percent.
struct random_graph_options {
  std::uint32_t operations = 6;
  std::uint32_t most_inputs = 3;     ///< tensors that an operation reads
  std::uint32_t second_output = 20;  ///< an operation writes two tensors …
  std::uint32_t third_output = 5;    ///< … or three
  std::uint32_t accumulate = 20;     ///< it adds to a tensor that others write and nobody has read yet
  std::uint32_t effect = 7;          ///< it has no outputs
  std::uint32_t once = 10;           ///< it must not run twice
  std::uint32_t final_output = 25;   ///< a tensor that somebody reads is an output of the step, too
  std::uint32_t dead = 15;           ///< a tensor that nobody reads is none: what makes it may be unneeded
  std::uint32_t backward = 50;   ///< the graph is forward and backward: the second half reads what the first half made
  std::uint32_t most_bytes = 9;  ///< 0 … of a tensor
  std::uint32_t most_workspace = 6;
  std::uint32_t most_time = 7;  ///< whole times, 0 … : sums are exact
};

/// Options of several kinds, by turns: what solvers have rules for is made frequent.
[[nodiscard]] inline random_graph_options kind_of_graph(std::uint64_t seed) {
  random_graph_options options{.operations = 3 + static_cast<std::uint32_t>(seed % 6)};
  switch (seed / 6 % 5) {
    case 1:
      options.accumulate = 60;
      options.second_output = 40;
      break;
    case 2:
      options.once = 30;
      options.effect = 15;
      break;
    case 3:
      options.most_bytes = 2;  // many of 0 bytes, many ties
      options.most_time = 1;
      break;
    case 4:
      options.backward = 100;
      options.once = 0;
      options.dead = 0;
      break;
    default:
      break;
  }
  return options;
}

/// A random graph for `measured_cost`, the same for the same seed.
[[nodiscard]] inline training_graph random_graph(std::uint64_t seed, const random_graph_options& options = {}) {
  std::mt19937_64 engine(seed);
  const auto below = [&](std::uint32_t n) { return n == 0 ? 0 : static_cast<std::uint32_t>(engine() % n); };
  const auto chance = [&](std::uint32_t percent) { return below(100) < percent; };

  struct tensor {
    std::uint32_t producers = 0, readers = 0;
  };
  std::vector<tensor> tensors(2);  // a parameter and an input
  std::vector<operation_spec> operations;
  const bool mirrored = chance(options.backward);
  for (std::uint32_t o = 0; o < options.operations; ++o) {
    operation_spec spec;
    const auto made = static_cast<std::uint32_t>(tensors.size());
    std::vector<std::uint8_t> touched(made, 0);
    const auto read = [&](std::uint32_t t) {
      if (touched[t]) return;
      touched[t] = 1;
      ++tensors[t].readers;
      spec.inputs.push_back(static_cast<tensor_id>(t));
    };
    const std::uint32_t reads = below(options.most_inputs + 1);
    for (std::uint32_t i = 0; i < reads; ++i) read(below(made));
    if (o > 0 && chance(70)) read(made - 1);  // mostly a chain
    if (mirrored && 2 * o >= options.operations) {
      const std::uint32_t mirror = options.operations - 1 - o;  // the forward operation that this one answers
      for (const tensor_id t : operations[mirror].outputs) read(static_cast<std::uint32_t>(index(t)));
    }
    if (!chance(options.effect)) {
      if (chance(options.accumulate))
        for (std::uint32_t t = 2; t < made; ++t)
          if (!touched[t] && tensors[t].readers == 0 && chance(50)) {
            touched[t] = 1;
            ++tensors[t].producers;
            spec.outputs.push_back(static_cast<tensor_id>(t));
            break;
          }
      std::uint32_t fresh = spec.outputs.empty() ? 1u : below(2);
      fresh += chance(options.second_output);
      fresh += chance(options.third_output);
      for (std::uint32_t i = 0; i < fresh; ++i) {
        spec.outputs.push_back(static_cast<tensor_id>(tensors.size()));
        tensors.push_back({1, 0});
      }
    }
    spec.phase = mirrored && 2 * o >= options.operations ? op_phase::backward : op_phase::forward;
    spec.workspace = chance(50) ? 0 : below(options.most_workspace + 1);
    spec.seconds = below(options.most_time + 1);
    spec.recomputable = !chance(options.once);
    operations.push_back(spec);
  }

  training_graph graph("random " + std::to_string(seed));
  for (std::uint32_t t = 0; t < tensors.size(); ++t)
    graph.add_tensor({"t" + std::to_string(t), below(options.most_bytes + 1),
                      t == 0   ? tensor_kind::parameter
                      : t == 1 ? tensor_kind::input
                               : tensor_kind::activation});
  for (operation_spec& spec : operations) graph.add_operation(std::move(spec));
  for (std::uint32_t t = 2; t < tensors.size(); ++t)
    if (tensors[t].readers == 0 ? !chance(options.dead) : chance(options.final_output))
      graph.add_final_output(static_cast<tensor_id>(t));
  return graph;
}

/// `random_graph` as a problem without a budget.
[[nodiscard]] inline problem random_problem(std::uint64_t seed, const random_graph_options& options = {}) {
  return problem(random_graph(seed, options), measured_cost{});
}

}  // namespace remat::test
