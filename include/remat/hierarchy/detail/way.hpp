// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat::detail {

/// One way to run a sub-graph: a forward that keeps some of its tensors, and a backward that starts from these.
/// Operations and tensors are indices of the sub-graph's lists, so a way of one sub-graph is a way of every sub-graph
/// that is equal to it up to renaming. \cite zhao2023rockmate
///
/// Below, *others* are the operations outside of the sub-graph. Bytes that others hold are not counted: the inputs of
/// the sub-graph; while its backward runs, the outputs of its forward; and gradients that others read as well.
struct sub_graph_way {
  /// The peak of a stretch that begins when the sub-graph has read some tensors of others for the last time.
  struct stretch {
    std::int64_t bytes = 0;             ///< the peak, if the tensors of `gone` count as resident
    std::vector<std::uint32_t> gone{};  ///< the tensors of others that were read for the last time, ascending
  };
  std::vector<std::uint32_t> forward{};   ///< the operations of the forward in order, with repetitions
  std::vector<std::uint32_t> backward{};  ///< the operations of the backward in order, with repetitions
  double forward_time = 0;                ///< the sum of the times of `forward`
  double backward_time = 0;               ///< the sum of the times of `backward`
  std::int64_t saved_bytes = 0;           ///< the bytes of `kept`
  std::int64_t forward_peak_bytes = 0;    ///< with the outputs for others
  std::int64_t backward_peak_bytes =
      0;  ///< beyond the resident bytes at its start; tensors that it frees are subtracted
  std::int64_t forward_peak_again_bytes = 0;   ///< `forward_peak_bytes` if the outputs are resident already
  std::int64_t backward_peak_again_bytes = 0;  ///< `backward_peak_bytes` if gradients may be resident already
  /// The stretches of the forward with a higher peak than all before them, in order. In the first one nothing is gone;
  /// the last one has the peak of the whole.
  std::vector<stretch> forward_stretches{};
  std::vector<stretch> backward_stretches{};  ///< the same of the backward
  // Tensors, ascending.
  std::vector<std::uint32_t> kept{};            ///< made by the forward, read by the backward, and by no others
  std::vector<std::uint32_t> forward_reads{};   ///< made by others
  std::vector<std::uint32_t> backward_reads{};  ///< made by others, or by the forward for others as well

  /// The time of the forward and the backward together.
  [[nodiscard]] double time() const noexcept { return forward_time + backward_time; }
};

/// True when a forward and a backward operation write the same tensor. `forward`: one byte for each operation.
/// O(writes) time.
[[nodiscard]] bool has_mixed_sums(const flat_graph& g, std::span<const std::uint8_t> forward);

/// A sub-graph as a problem of its own, and the measurement of its ways. Precondition: no tensor is written by forward
/// and by backward operations (`has_mixed_sums`).
///
/// `problem_within` gives the sub-graph as a problem: its forward; an operation *take*, which reads the outputs of the
/// forward; an operation *turn*, which makes the gradients that come from others; its backward. Inputs from others are
/// always resident. The turn has a workspace of (peak budget − save budget), so that no more than the save budget is
/// held at the turn. So every solver of problems can find ways.
class sub_graph_runs {
 public:
  /// Keeps a reference to `part`. O(size of the sub-graph) time.
  explicit sub_graph_runs(const sub_graph& part);

  /// The sub-graph that the constructor was given.
  [[nodiscard]] const sub_graph& part() const noexcept { return part_; }
  /// The operations [0, num_forward()) are forward.
  [[nodiscard]] std::uint32_t num_forward() const noexcept { return num_forward_; }
  /// True when some operation of the forward must not run twice; the forward as a whole then runs once.
  [[nodiscard]] bool forward_once() const noexcept { return forward_once_; }
  /// True when some operation of the backward must not run twice, or adds to a sum.
  [[nodiscard]] bool backward_once() const noexcept { return backward_once_; }
  /// True when the forward makes tensor t, and others read it, or add to it before the sub-graph reads it.
  [[nodiscard]] bool is_output(std::uint32_t t) const noexcept;
  /// True when the backward makes tensor t or adds to it, and others read it.
  [[nodiscard]] bool is_gradient_output(std::uint32_t t) const noexcept {
    return (role_[t] & made_by_backward) != 0 && others(t) >= sub_graph::read_by_forward;
  }
  /// True when the backward reads tensor t, and others make it or add to it in their backward.
  [[nodiscard]] bool is_gradient_input(std::uint32_t t) const noexcept {
    return (role_[t] & read_by_backward) != 0 && (others(t) & sub_graph::made_by_backward) != 0;
  }
  /// True when the forward reads tensor t, and both the sub-graph and others add to it before.
  [[nodiscard]] bool is_forward_sum(std::uint32_t t) const noexcept {
    return (role_[t] & read_by_forward) != 0 && (role_[t] & made_by_forward) != 0 &&
           (others(t) & sub_graph::made_by_forward) != 0;
  }
  /// The bytes of all gradient inputs (`is_gradient_input`) together. O(tensors) time.
  [[nodiscard]] std::int64_t gradient_input_bytes() const noexcept;

  /// The way with these operations; those whose results nobody reads are left out. With an empty backward the way
  /// keeps nothing. Returns nothing when an operation reads a tensor that has not been made. O(reads and writes of the
  /// operations + tensors) time.
  [[nodiscard]] std::optional<sub_graph_way> measure(std::span<const std::uint32_t> forward,
                                                     std::span<const std::uint32_t> backward) const;

  /// The way that runs every operation once, in the listed order.
  [[nodiscard]] sub_graph_way keep_everything() const;
  /// The way without a backward: those of the given operations that make the outputs.
  [[nodiscard]] sub_graph_way keep_nothing(std::span<const std::uint32_t> forward) const {
    return *measure(forward, {});
  }

  /// The sub-graph as a problem with these budgets, as said above. Outputs of the forward and gradients from others are
  /// counted. `way_of` makes a way of a schedule.
  [[nodiscard]] problem problem_within(std::int64_t peak_bytes, std::int64_t save_bytes) const;

  /// Bytes that count against the save budget: the kept ones, and those that the backward reads of the forward's
  /// outputs.
  [[nodiscard]] std::int64_t held_at_turn(const sub_graph_way& way) const;

  /// The way of a schedule of `problem_within`. Returns nothing for other schedules.
  [[nodiscard]] std::optional<sub_graph_way> way_of(const schedule& plan) const;

 private:
  // The roles of a tensor inside the sub-graph.
  static constexpr std::uint8_t made_by_forward = 1, made_by_backward = 2, read_by_forward = 4, read_by_backward = 8;
  static constexpr std::uint32_t is_free = 1U << 31U;

  /// Computes (operation) and frees (tensor | is_free) in order, and the tensors that must be resident at the start.
  struct events {
    std::vector<std::uint32_t> steps{};
    std::vector<std::uint8_t> at_start{};
  };

  [[nodiscard]] std::uint8_t others(std::uint32_t t) const noexcept { return part_.tensor[t].roles; }

  /// As `schedule_computes`, for operations that end with the tensors of `wanted` resident.
  /// `makers`: for each tensor the number of operations that make it; when all of them run, it need not be resident at
  /// the start.
  [[nodiscard]] events place_frees(std::span<const std::uint32_t> operations, const std::vector<std::uint8_t>& wanted,
                                   const std::vector<std::uint32_t>& makers) const;

  /// Appends the operations of `what` to `operations`. Returns their time.
  double append_computes(const events& what, std::vector<std::uint32_t>& operations) const;

  /// The peak of `what`, if others hold the tensors of `there`.
  [[nodiscard]] std::int64_t replay(const events& what, bool backward, std::vector<std::uint8_t> there,
                                    std::vector<sub_graph_way::stretch>* stretches = nullptr) const;

  const sub_graph& part_;
  std::size_t tensors_;
  std::uint32_t num_forward_ = 0;
  std::vector<std::uint8_t> role_, once_;
  // For each tensor the number of operations of the sub-graph that make it, and of forward ones among them.
  std::vector<std::uint32_t> inside_, inside_forward_;
  bool forward_once_ = false, backward_once_ = false;
};

/// Translates a way of sub-graph a to sub-graph b, which is equal to a up to renaming, and measures it there. `mapping`
/// is from b to a.
[[nodiscard]] std::optional<sub_graph_way> translate(const sub_graph_way& way, const sub_graph_mapping& mapping,
                                                     const sub_graph_runs& b);

/// Removes the ways that another way dominates: in time, saved bytes, both peaks, and bytes of others' tensors
/// that the backward reads. Sorts the rest by falling saved bytes, then by time. O(n²) time.
void keep_pareto_optimal(std::vector<sub_graph_way>& ways, const sub_graph_runs& runs);

/// Keeps at most `most` ways of a list that `keep_pareto_optimal` sorted: both ends, then repeatedly the way
/// whose saved bytes are farthest from those chosen. Precondition: `most` ≥ 2. O(n · most) time.
void thin_out(std::vector<sub_graph_way>& ways, std::size_t most);

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/hierarchy/impl/way.hpp"
#endif
