// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/hierarchy/detail/isomorphism.hpp"
#include "remat/hierarchy/detail/way.hpp"
#include "remat/hierarchy/hierarchy.hpp"
#include "remat/method/hiremate/detail/level_problem.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat::detail {

/// A child of a level: a group, or a forward operation with the backward operations anchored at it.
struct level_child {
  sub_graph part{};                   ///< the child's operations and tensors
  std::vector<sub_graph_way> ways{};  ///< at least one
};

/// The children of a group of a hierarchy in turn (group 0: the whole graph), each with the option that keeps
/// everything. O(reads and writes of the group's operations) time beside that of `extract`.
[[nodiscard]] std::vector<level_child> children_of(const operation_hierarchy& h, std::size_t group,
                                                   sub_graph_extractor& extract);

/// Builds the `level_problem` of one level, and translates its schedules back: the forwards of the children in turn,
/// for a group then *take* and *turn* (as in `sub_graph_runs`), then the backwards of the children in opposite turn.
///
/// The forward of a child runs either for its outputs alone or with one of its options; the backward runs with an
/// option. The tensors that an option keeps are one tensor of the level, its phantom. Options that keep the same
/// tensors after the same forward share their phantom. \cite gusak2025hiremate
class level_builder {
 public:
  static constexpr std::uint32_t none = level_problem::none;  ///< stands for "no child", "no option" and "no tensor"

  /// The whole graph. Keeps references to the graph and the children.
  level_builder(const flat_graph& g, std::span<const level_child> children);
  /// A group, within budgets in bytes. `whole` is the part to which the children belong.
  level_builder(const flat_graph& g, std::span<const level_child> children, const sub_graph_runs& whole,
                std::int64_t peak_bytes, std::int64_t save_bytes);

  /// The level, with the runs of all children.
  [[nodiscard]] const level_problem& level() const noexcept { return level_; }
  /// The number of children of the level.
  [[nodiscard]] std::size_t num_children() const noexcept { return children_.size(); }

  /// The operations of the graph that a schedule of the level runs, in order.
  [[nodiscard]] std::vector<std::uint32_t> expand(std::span<const level_problem::choice> choices) const;

  /// The level with one option chosen for each child, as an ordinary problem for any solver: its operations are the
  /// runs of the level. `choices_of` translates a schedule. A forward that runs again while its outputs are resident
  /// needs more memory than one that has yet to make them. `careful` always counts this memory, so an expanded schedule
  /// never needs more than the schedule says; otherwise it is never counted. Backwards may run again where their
  /// operations allow it, although they do not in the level.
  [[nodiscard]] problem with_ways(std::span<const std::uint32_t> option, std::int64_t budget,
                                  bool careful = true) const;

  /// The choices of a schedule of `with_ways`. Of several runs of a forward before its backward, only the last one
  /// keeps tensors. Runs that the schedule leaves out, because no operation reads their tensors, take place in the
  /// listed order.
  [[nodiscard]] std::vector<level_problem::choice> choices_of(const schedule& plan,
                                                              std::span<const std::uint32_t> option) const;

 private:
  struct meaning {
    std::uint32_t child = none;  // none: take or turn
    bool backward = false;
  };

  // A sum to which a child adds and which it then reads is complete with that child: for the level, the child reads it
  // and the others make it. Where these are outside of the group, the sum is no tensor of the level.
  [[nodiscard]] static bool makes_forward(const sub_graph_runs& child, std::uint32_t t) {
    return child.is_output(t) && !child.is_forward_sum(t);
  }
  [[nodiscard]] static bool makes_backward(const sub_graph_runs& child, std::uint32_t t) {
    return child.is_gradient_output(t) && !child.is_gradient_input(t);
  }

  /// For each operation: it has no outputs, or adds to a sum that the child reads and to which others add.
  [[nodiscard]] static std::vector<std::uint8_t> effects_of(const sub_graph_runs& child);
  [[nodiscard]] bool has_backward(std::uint32_t child) const;
  /// The operations of a variant of a run.
  [[nodiscard]] const std::vector<std::uint32_t>& operations_of(std::uint32_t run, std::uint32_t variant) const;

  /// True when an operation of the run has an effect (`effects_of`).
  [[nodiscard]] bool has_effect(std::uint32_t run, std::uint32_t variant) const;
  /// In `with_ways`: also backwards, where all their operations may.
  [[nodiscard]] bool may_run_again(std::uint32_t run, std::uint32_t variant) const;
  /// Bytes that a run needs beside what it writes, in `with_ways`.
  [[nodiscard]] std::int64_t workspace_of(std::uint32_t run, std::span<const std::uint32_t> option, bool careful) const;

  [[nodiscard]] std::uint32_t variant_for(std::uint32_t r, std::span<const std::uint32_t> option) const;

  [[nodiscard]] std::vector<std::uint32_t> in_level(const level_child& c,
                                                    const std::vector<std::uint32_t>& tensors) const;

  /// A variant; the stretches after the last reads of others' tensors are its inner peaks (the correction terms).
  [[nodiscard]] level_problem::variant variant(const level_child& c, double time,
                                               const std::vector<sub_graph_way::stretch>& stretches,
                                               std::vector<std::uint32_t> reads,
                                               std::vector<std::uint32_t> writes) const;

  /// `whole`: the part of a group, null for the whole graph.
  void build(const sub_graph_runs* whole, std::int64_t peak, std::int64_t save);
  /// Numbers the tensors of the level: those that children make for others, and the gradients that the turn makes.
  /// Other tensors are always resident.
  void number_tensors(std::span<const sub_graph_runs> runs, const sub_graph_runs* whole);
  void add_forward(std::uint32_t c, const sub_graph_runs& run);
  void add_take_and_turn(const sub_graph_runs& whole, std::int64_t peak, std::int64_t save);
  void add_backward(std::uint32_t c, const sub_graph_runs& run);

  std::uint32_t number(std::uint32_t t);

  const flat_graph& graph_;
  std::span<const level_child> children_;
  level_problem level_;
  std::vector<std::uint32_t> local_;                 // tensor of the step → of the level
  std::vector<sub_graph_way> fast_;                  // of a child: a forward for others alone
  std::vector<meaning> meaning_;                     // of a run
  std::vector<std::vector<std::uint8_t>> effect_;    // of a child's operation: it does more than make what others want
  std::vector<std::uint8_t> backward_again_;         // of a run: a backward that may run twice, though not in the level
  std::vector<std::vector<std::uint32_t>> phantom_;  // of a child: option → its phantom, or none
  std::vector<std::vector<std::uint32_t>> forward_option_;   // of a forward run: what its variants mean; none: fast
  std::vector<std::vector<std::uint32_t>> forward_variant_;  // of a child: option → variant of its forward
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/hiremate/impl/level_builder.hpp"
#endif
