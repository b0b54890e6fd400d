// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/problem/problem.hpp"
#include "support/block_stack.hpp"

namespace remat::test {

/// Families of training steps that grow to any size, for `large_step`.
enum class step_family : std::uint8_t {
  chain,       ///< layer after layer; the backward of a layer reads what the layer read
  decoder,     ///< the stack `stack_kind::decoder`
  u_nets,      ///< U-Nets of ten residual blocks, one after the other
  recurrence,  ///< an unrolled gated cell with shared weights; every eighth step also reads the state eight steps
               ///< before
  layered,     ///< a random layered graph as the forward pass, and its backward
  layered_dag  ///< a random layered graph by itself
};

/// The families with their names on a command line.
inline constexpr std::pair<std::string_view, step_family> step_families[] = {
    {"chain", step_family::chain},     {"decoder", step_family::decoder},
    {"u-nets", step_family::u_nets},   {"recurrence", step_family::recurrence},
    {"layered", step_family::layered}, {"layered-dag", step_family::layered_dag}};

/// Writes the families that consist of the layers of a network.
class large_step_writer : stack_writer {
 public:
  /// `repeats`: blocks of the decoder, U-Nets, or steps of the recurrence.
  static training_graph make(step_family family, std::uint32_t repeats) {
    stack_options options;
    options.blocks = repeats;
    if (family == step_family::decoder) return make_stack(stack_kind::decoder, options);
    if (family == step_family::recurrence) options.width = 512;
    return large_step_writer(options).write(family, repeats);
  }

 private:
  explicit large_step_writer(const stack_options& options)
      : stack_writer(stack_kind::residual, options, "large step") {}

  training_graph write(step_family family, std::uint32_t repeats) {
    if (family == step_family::recurrence) return recurrence(repeats);
    value x = picture();
    for (std::uint32_t i = 0; i < repeats; ++i) x = u_net(x, 5);
    return net_.finish(net_.linear(x, 8));
  }

  /// h ← h + σ(h·A + x·B) · (tanh(h·C + x·D) − h), where h is first added to the state eight steps before, if a step
  /// reads that.
  training_graph recurrence(std::uint32_t steps) {
    constexpr std::uint32_t skip = 8;
    const std::int64_t w = options_.width;
    const value a = net_.weight(w, w), b = net_.weight(w, w), c = net_.weight(w, w), d = net_.weight(w, w);
    const auto token = [&] { return net_.input(options_.batch * 32, w); };
    std::vector<value> states{net_.linear(token(), w)};
    for (std::uint32_t t = 1; t <= steps; ++t) {
      const value x = token();
      value h = states.back();
      if (t % skip == 0 && t > skip) h = net_.sum(h, states[t - skip]);
      using of = network_writer::derivative_of;
      const value gate = net_.map("sigmoid", net_.sum(net_.linear(h, a), net_.linear(x, b)), of::result);
      const value change = net_.map("tanh", net_.sum(net_.linear(h, c), net_.linear(x, d)), of::result);
      states.push_back(net_.sum(h, net_.product(gate, net_.sum(change, net_.map("negate", h, of::nothing)))));
    }
    return net_.finish(net_.linear(states.back(), 1000));
  }
};

/// A chain of `layers` forward operations, a loss and as many backward ones. Sizes and times vary by up to an eighth;
/// for seed 0 all are equal.
[[nodiscard]] inline training_graph large_chain(std::uint32_t layers, std::uint64_t seed) {
  detail::random_source random(seed);
  const auto vary = [&](std::int64_t about) { return seed == 0 ? about : about - about / 8 + random.below(about / 4); };
  training_graph g("chain");
  std::vector<tensor_id> made{g.add_tensor({.bytes = 1 << 20, .kind = tensor_kind::input})};
  const auto add = [&](op_phase phase, std::vector<tensor_id> reads, double seconds) {
    const auto kind = phase == op_phase::backward ? tensor_kind::gradient : tensor_kind::activation;
    const tensor_id t = g.add_tensor({.bytes = vary(1 << 20), .kind = kind});
    const double factor = static_cast<double>(vary(1 << 20)) / (1 << 20);
    g.add_operation({.phase = phase, .inputs = std::move(reads), .outputs = {t}, .seconds = seconds * factor});
    return t;
  };
  for (std::uint32_t i = 0; i < layers; ++i) made.push_back(add(op_phase::forward, {made.back()}, 1e-3));
  tensor_id gradient = add(op_phase::loss, {made.back()}, 1e-4);
  for (std::uint32_t i = layers; i-- > 0;) gradient = add(op_phase::backward, {gradient, made[i]}, 2e-3);
  g.add_final_output(gradient);
  return g;
}

/// A random layered graph in the manner of Gagrani et al. 2022 (Neural topological ordering for computation graphs):
/// layers of random width, each operation reads one to three tensors, mostly of the layer before and seldom of one far
/// away; each tensor but those of the last layer is read. Sizes are of a mixture of three kinds. With `backward`, as
/// many operations follow in reverse: each reads the gradients that its mirror image's readers made, and half of the
/// tensors that it read.
[[nodiscard]] inline training_graph random_layered(std::uint32_t operations, bool backward, std::uint64_t seed) {
  detail::random_source random(seed);
  const std::uint32_t forward = std::max(2U, backward ? operations / 2 : operations);
  // Beside layers of about √n, wider ones would make the cut between two layers grow with the graph.
  const std::uint32_t width = std::clamp(static_cast<std::uint32_t>(std::sqrt(forward)) / 2, 2U, 32U);
  const auto bytes = [&] {
    static constexpr std::int64_t kinds[] = {1 << 14, 1 << 18, 1 << 20};
    const std::int64_t about = kinds[random.below(3)];
    return about / 2 + random.below(static_cast<std::uint64_t>(about));
  };
  const auto seconds = [&] { return 1e-4 * (0.2 + 1.8 * random.uniform()); };
  std::vector<std::vector<std::uint32_t>> reads(forward);
  std::vector<std::uint8_t> is_read(forward, 0);
  const auto read = [&](std::uint32_t o, std::uint32_t from) {
    if (std::find(reads[o].begin(), reads[o].end(), from) == reads[o].end()) reads[o].push_back(from);
    is_read[from] = 1;
  };
  std::uint32_t before = 0;  // where the last layer begins
  for (std::uint32_t begin = 0; begin < forward;) {
    const std::uint32_t end = std::min(forward, begin + 1 + random.below(2 * width - 1));
    for (std::uint32_t o = begin; o < end && begin > 0; ++o)
      for (std::uint32_t i = 1 + random.below(3); i-- > 0;)
        read(o, random.below(12) == 0 ? random.below(begin) : before + random.below(begin - before));
    for (std::uint32_t o = before; o < begin; ++o)
      if (!is_read[o]) read(begin + random.below(end - begin), o);
    before = begin;
    begin = end;
  }
  training_graph g(backward ? "layered" : "layered DAG");
  std::vector<tensor_id> made;
  for (std::uint32_t o = 0; o < forward; ++o) {
    std::vector<tensor_id> inputs;
    for (const std::uint32_t from : reads[o]) inputs.push_back(made[from]);
    made.push_back(g.add_tensor({.bytes = bytes()}));
    g.add_operation({.phase = backward ? op_phase::forward : op_phase::unknown,
                     .inputs = std::move(inputs),
                     .outputs = {made.back()},
                     .seconds = seconds()});
  }
  if (!backward) {
    for (std::uint32_t o = 0; o < forward; ++o)
      if (!is_read[o]) g.add_final_output(made[o]);
    return g;
  }
  std::vector<tensor_id> ends;
  for (std::uint32_t o = 0; o < forward; ++o)
    if (!is_read[o]) ends.push_back(made[o]);
  const tensor_id loss = g.add_tensor({.bytes = 4});
  g.add_operation({.phase = op_phase::loss, .inputs = std::move(ends), .outputs = {loss}, .seconds = 1e-5});
  std::vector<std::vector<tensor_id>> gradients(forward);  // of an operation: those that its readers' mirrors made
  for (std::uint32_t o = forward; o-- > 0;) {
    std::vector<tensor_id> inputs = std::move(gradients[o]);
    if (inputs.empty()) inputs.push_back(loss);
    for (const std::uint32_t from : reads[o])
      if (random.below(2) == 0) inputs.push_back(made[from]);
    const tensor_id t = g.add_tensor({.bytes = bytes(), .kind = tensor_kind::gradient});
    g.add_operation(
        {.phase = op_phase::backward, .inputs = std::move(inputs), .outputs = {t}, .seconds = 2 * seconds()});
    for (const std::uint32_t from : reads[o]) gradients[from].push_back(t);
    if (reads[o].empty()) g.add_final_output(t);
  }
  g.add_final_output(loss);
  return g;
}

/// A training step of about so many operations (at least 30), without a budget. The same for the same seed; decoders,
/// U-Nets and recurrences do not depend on it.
[[nodiscard]] inline training_graph large_step_graph(step_family family, std::uint32_t operations,
                                                     std::uint64_t seed = 0) {
  if (operations < 30) throw bad_argument("a large step has at least 30 operations");
  switch (family) {
    case step_family::chain:
      return large_chain((operations - 1) / 2, seed);
    case step_family::layered:
    case step_family::layered_dag:
      return random_layered(operations, family == step_family::layered, seed);
    default:
      break;
  }
  // The size of two small ones gives that of all.
  const auto size_of = [&](std::uint32_t n) { return large_step_writer::make(family, n).num_operations(); };
  const std::size_t small = size_of(16), each = (size_of(32) - small) / 16;
  const std::size_t wanted = operations + 16 * each;
  return large_step_writer::make(
      family, static_cast<std::uint32_t>(std::max(wanted, small + each) - small) / static_cast<std::uint32_t>(each));
}

/// \overload
///
/// As a problem: times of layers by the roofline model.
[[nodiscard]] inline problem large_step(step_family family, std::uint32_t operations, std::uint64_t seed = 0) {
  const training_graph g = large_step_graph(family, operations, seed);
  const bool of_layers =
      family == step_family::decoder || family == step_family::u_nets || family == step_family::recurrence;
  return of_layers ? problem(g, roofline_cost{}) : problem(g, measured_cost{});
}

}  // namespace remat::test
