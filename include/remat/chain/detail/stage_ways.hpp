// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/sized_chain.hpp"
#include "remat/chain/detail/stage_chain.hpp"
#include "remat/problem/problem.hpp"

namespace remat::detail {

/// One way to run a stage of a chain: operations of the graph, in order. An operation may run more than once.
struct stage_way {
  std::vector<std::uint32_t> forward{};   ///< operations of the forward, in order
  std::vector<std::uint32_t> backward{};  ///< operations of the backward, recomputations included, in order
};

/// The stages of a graph's chain, each with several ways to run it that keep all its backward needs
/// \cite zhao2023rockmate.
///
/// The first way of a stage is that of `stage_chain`: every operation once, in its order. The forward of a further way
/// runs some of the operations of the stage, among them those that make the tensors which others read; its backward
/// computes again the tensors that it lacks. Forwards that keep nothing, and the tensors that cross between stages, are
/// those of `stage_chain`.
///
/// The memory of stage s, kept whole by a way for the backwards of the stages up to t, is counted by these rules, each
/// tensor once:
/// - the tensors that s makes and that must be there when the way's backward starts;
/// - of the other tensors that s makes, those that the backward of another stage up to t reads by any of its ways, or a
///   forward of a stage up to t, unless they are transient;
/// - the tensors of earlier stages that are transient for `stage_chain` and that the way's backward reads, since they
///   would be free after the last forward that reads them. Two stages that hold the same such tensor both count it, and
///   forwards count it with the transient tensors.
/// All other inputs of a backward are there as inputs of the stage, or are kept by other stages.
///
/// The counts of the first way are those of `stage_chain`. The counts of further ways are tested, not proven
/// (docs/rotor.md): the schedules of `expand` never took more time than the counts with `standing_time`, and rarely
/// more memory.
class staged_ways {
 public:
  /// `further[s]`: further ways of stage s, s = 1 … L. Keeps a reference to the chain.
  /// O(L² · ways + reads and writes of all ways) time.
  staged_ways(const flat_graph& g, const stage_chain& chain, std::vector<std::vector<stage_way>> further);

  /// The chain that was given.
  [[nodiscard]] const stage_chain& chain() const noexcept { return chain_; }
  /// The ways of a stage. The first is that of `stage_chain`. Precondition: 1 ≤ stage ≤ L.
  [[nodiscard]] std::span<const stage_way> ways(std::uint32_t stage) const noexcept { return ways_[stage]; }

  /// The figures of a way: the fields of `keep_option`, in bytes.
  struct measured_way {
    double time = 0;                     ///< of the forward and the backward, in the cost model's unit
    double last_time = 0;                ///< the same, with the forward right before the backward
    std::vector<std::int64_t> saved{};   ///< [t], t = s … L: kept for the backwards of the stages up to t
    std::int64_t forward_peak = 0;       ///< of the forward, as `stage_chain::forward_peak` counts it
    std::int64_t last_forward_peak = 0;  ///< the same, with the forward right before the backward
    std::int64_t backward_peak = 0;      ///< of the backward, with the saved tensors and the gradients
  };
  /// The figures of a way of a stage. Precondition: way < ways(stage).size().
  [[nodiscard]] const measured_way& measured(std::uint32_t stage, std::size_t way) const noexcept {
    return measured_[stage][way];
  }

  /// The operations of a schedule of the chain, in order, for `schedule_computes`, each stage run by its way: see
  /// `stage_chain::expand`. O(steps + operations of the steps) time.
  [[nodiscard]] std::vector<std::uint32_t> expand(std::span<const chain_step> steps, bool whole = false) const;

 private:
  const stage_chain& chain_;
  std::vector<std::vector<stage_way>> ways_;         // [stage]
  std::vector<std::vector<measured_way>> measured_;  // [stage][way]
};

/// The stages of a graph with all their ways, each size converted by `scale`. O(L² · ways) time.
[[nodiscard]] sized_chain size_chain(const staged_ways& w, const slot_scale& scale = {});

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/chain/impl/stage_ways.hpp"
#endif
