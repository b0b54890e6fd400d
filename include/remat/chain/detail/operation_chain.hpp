// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/problem/problem.hpp"

namespace REMAT_NAMESPACE::detail {

/// A training step whose forward line is a chain of operations: of the tensors that the line makes, each operation
/// reads those of the operation right before it alone. Each operation is a stage, but for those of the loss: they
/// belong to the last stage. Stages count from 1 to L.
///
/// A backward operation belongs to stage min(f, g): f is the highest stage that makes one of its forward inputs, g the
/// lowest stage that makes one of its gradient inputs; each is L without such inputs. Unlike `stage_chain`, it takes no
/// more time and memory than the graph, so a line of any length has one; but it measures nothing.
class operation_chain {
 public:
  /// The chain of a graph; nothing if its forward line is none, or has fewer than two stages. O(operations + reads and
  /// writes) time.
  [[nodiscard]] static std::optional<operation_chain> find(const flat_graph& g) {
    forward_line line = find_forward_line(g);
    auto length = static_cast<std::uint32_t>(line.operations.size());
    while (length > 0 && !g.phase.empty() && g.phase[line.operations[length - 1]] == op_phase::loss) --length;
    if (length < 2) return {};
    std::vector<std::uint32_t> made_in(g.num_tensors, 0);  // the place in the line, from 1, that makes a tensor
    for (std::uint32_t s = 1; s <= line.operations.size(); ++s) {
      const std::uint32_t o = line.operations[s - 1];
      for (const std::uint32_t t : g.inputs[o])
        if (made_in[t] != 0 && made_in[t] + 1 != s) return {};
      for (const std::uint32_t t : g.outputs[o]) {
        if (g.producers[t].size() > 1) return {};
        made_in[t] = s;
      }
    }
    for (std::uint32_t& place : made_in) place = std::min(place, length);
    return operation_chain(g, std::move(line), length, made_in);
  }

  /// L, the number of stages.
  [[nodiscard]] std::uint32_t length() const noexcept { return length_; }
  /// The forward operations of a stage: one; of the last stage perhaps more. Precondition: 1 ≤ stage ≤ L, here and
  /// below.
  [[nodiscard]] std::span<const std::uint32_t> forward(std::uint32_t stage) const noexcept {
    const std::span<const std::uint32_t> all = line_.operations;
    return stage < length_ ? all.subspan(stage - 1, 1) : all.subspan(stage - 1);
  }
  /// The backward operations of a stage, in the listed order.
  [[nodiscard]] std::span<const std::uint32_t> backward(std::uint32_t stage) const noexcept {
    return {backward_.data() + first_[stage - 1], backward_.data() + first_[stage]};
  }
  /// The bytes that the forward of a stage makes for that of the next one.
  [[nodiscard]] std::int64_t crossing_bytes(std::uint32_t stage) const noexcept {
    return stage < length_ ? line_.crossing[stage] : 0;
  }

  /// The operations of a schedule of the chain, in order, for `schedule_computes`: each forward and each
  /// backward runs the operations of its stage. Steps of the loss, stage L + 1, are skipped, and so are further runs of
  /// what runs once. O(steps + operations) time.
  [[nodiscard]] std::vector<std::uint32_t> expand(const flat_graph& g, std::span<const chain_step> steps) const {
    std::vector<std::uint32_t> operations;
    operations.reserve(steps.size() + backward_.size());
    std::vector<std::uint8_t> ran(g.num_operations, 0);
    const auto run_one = [&](std::uint32_t o) {
      if (ran[o] != 0 && g.once[o] != 0) return;
      ran[o] = 1;
      operations.push_back(o);
    };
    for (const chain_step& step : steps) {
      if (step.stage > length_) continue;
      const bool is_backward = step.action == chain_action::backward;
      for (const std::uint32_t o : is_backward ? backward(step.stage) : forward(step.stage)) run_one(o);
    }
    return operations;
  }

 private:
  /// `made_in`: the stage whose forward makes a tensor; 0: none.
  operation_chain(const flat_graph& g, forward_line line, std::uint32_t length,
                  const std::vector<std::uint32_t>& made_in)
      : line_(std::move(line)), length_(length) {
    std::vector<std::uint32_t> stage_of(g.num_operations, 0);  // each backward operation's stage
    first_.assign(length_ + std::size_t{1}, 0);
    for (const std::uint32_t o : line_.rest) {
      std::uint32_t from_forward = 0, from_gradients = length_;  // f (0: none) and g
      for (const std::uint32_t t : g.inputs[o]) {
        from_forward = std::max(from_forward, made_in[t]);
        for (const std::uint32_t maker : g.producers[t])
          if (stage_of[maker] != 0) from_gradients = std::min(from_gradients, stage_of[maker]);
      }
      stage_of[o] = from_forward == 0 ? from_gradients : std::min(from_forward, from_gradients);
      ++first_[stage_of[o]];
    }
    for (std::uint32_t s = 1; s <= length_; ++s) first_[s] += first_[s - 1];
    std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
    backward_.resize(line_.rest.size());
    for (const std::uint32_t o : line_.rest) backward_[next[stage_of[o] - 1]++] = o;
  }

  forward_line line_;
  std::uint32_t length_;
  std::vector<std::uint32_t> first_;     // [s]: the backward operations of stage s are [first_[s − 1], first_[s])
  std::vector<std::uint32_t> backward_;  // the backward operations, by stage
};

}  // namespace REMAT_NAMESPACE::detail
