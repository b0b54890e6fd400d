// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "remat/hierarchy/hierarchy.hpp"
#include "remat/hierarchy/isomorphism.hpp"
#include "remat/hierarchy/level_problem.hpp"
#include "remat/hierarchy/part_option.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat {

/// A child of a level: a forward operation with the backward operations that belong to it, or a group of such.
struct level_child {
  step_part part{};
  std::vector<part_option> options{};  ///< at least one
};

/// The children of a group of a hierarchy (0: the whole step), in turn; each has the option that keeps everything.
/// O(reads and writes of the group's operations) time beside what `extract` takes.
[[nodiscard]] std::vector<level_child> children_of(const operation_hierarchy& h, std::size_t group,
                                                   part_extractor& extract);

/// One level of a hierarchy as a `level_problem`, and back: the forward of each child in turn, then for a group (as in
/// `part_runs`) *take* and *turn*, then their backwards in the opposite turn.
///
/// The forward of a child runs for what others read alone, or with one of its options; the backward with an option.
/// What an option keeps for the backward alone is one tensor, its phantom; options that keep the same after the same
/// forward share it. \cite gusak2025hiremate
class level_builder {
 public:
  static constexpr std::uint32_t none = level_problem::none;

  /// The whole step. Looks at the step and the children while it is used; both have to outlive it.
  level_builder(const flat_graph& s, std::span<const level_child> children);
  /// A group: `whole` is the part that the children are of.
  level_builder(const flat_graph& s, std::span<const level_child> children, const part_runs& whole,
                std::int64_t peak_bytes, std::int64_t save_bytes);

  [[nodiscard]] const level_problem& level() const noexcept { return level_; }
  [[nodiscard]] std::size_t num_children() const noexcept { return children_.size(); }

  /// The operations of the step that a schedule of the level runs.
  [[nodiscard]] std::vector<std::uint32_t> expand(std::span<const level_problem::choice> choices) const;

  /// The level with one option chosen for each child, as an ordinary problem: its operations are the level's runs. For
  /// any solver; `choices_of` turns a schedule into one of the level.
  /// What a run needs depends on what is there: where a forward runs again while its outputs are held, what it needs
  /// before it makes them comes on top. `careful` counts that always: what a schedule expands to never needs more
  /// memory than the schedule says. Else it is never counted. Backwards may run again here, if that is allowed; in the
  /// level they do not.
  [[nodiscard]] problem with_options(std::span<const std::uint32_t> option, std::int64_t budget,
                                     bool careful = true) const;

  /// The choices of a schedule of `with_options`. A forward that runs again before its backward has run keeps nothing
  /// the times before the last. What the schedule does without, because nobody wants it, runs where it would have been.
  [[nodiscard]] std::vector<level_problem::choice> choices_of(const schedule& plan,
                                                              std::span<const std::uint32_t> option) const;

 private:
  struct meaning {
    std::uint32_t child = none;  // none: take or turn
    bool backward = false;
  };

  // What a child adds to and then reads is complete with that: it reads it, and the others are who makes it. Where
  // these are outside of the group, too, it is no tensor of the level.
  [[nodiscard]] static bool makes_forward(const part_runs& child, std::uint32_t t) {
    return child.is_output(t) && !child.is_forward_sum(t);
  }
  [[nodiscard]] static bool makes_backward(const part_runs& child, std::uint32_t t) {
    return child.is_gradient_output(t) && !child.is_gradient_input(t);
  }

  /// Of each operation: it has no outputs, or adds to what the child reads and others make, too.
  [[nodiscard]] static std::vector<std::uint8_t> effects_of(const part_runs& child);
  [[nodiscard]] bool has_backward(std::uint32_t child) const;
  /// What a run does.
  [[nodiscard]] const std::vector<std::uint32_t>& operations_of(std::uint32_t run, std::uint32_t variant) const;

  /// An operation of the run has an effect beside the tensors that others want.
  [[nodiscard]] bool has_effect(std::uint32_t run, std::uint32_t variant) const;
  /// In `with_options`: also backwards, where all their operations may.
  [[nodiscard]] bool may_run_again(std::uint32_t run, std::uint32_t variant) const;
  /// Bytes that a run needs beside what it writes, in `with_options`.
  [[nodiscard]] std::int64_t workspace_of(std::uint32_t run, std::span<const std::uint32_t> option, bool careful) const;

  [[nodiscard]] std::uint32_t variant_for(std::uint32_t r, std::span<const std::uint32_t> option) const;

  [[nodiscard]] std::vector<std::uint32_t> in_level(const level_child& c,
                                                    const std::vector<std::uint32_t>& tensors) const;

  /// What happens after others' tensors have been read for the last time is an inner peak: the correction terms.
  [[nodiscard]] level_problem::variant variant(const level_child& c, double time,
                                               const std::vector<part_option::stretch>& stretches,
                                               std::vector<std::uint32_t> reads,
                                               std::vector<std::uint32_t> writes) const;

  void build(const part_runs* whole, std::int64_t peak, std::int64_t save);

  std::uint32_t number(std::uint32_t t);

  const flat_graph& step_;
  std::span<const level_child> children_;
  level_problem level_;
  std::vector<std::uint32_t> local_;               // tensor of the step → of the level
  std::vector<part_option> fast_;                  // of a child: a forward for others alone
  std::vector<meaning> meaning_;                   // of a run
  std::vector<std::vector<std::uint8_t>> effect_;  // of a child's operation: it does more than make what others want
  std::vector<std::uint8_t> backward_again_;       // of a run: a backward that may run twice, though not in the level
  std::vector<std::vector<std::uint32_t>> forward_option_;   // of a forward run: what its variants mean; none: fast
  std::vector<std::vector<std::uint32_t>> forward_variant_;  // of a child: option → variant of its forward
};

}  // namespace remat

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/hierarchy/impl/level_builder.hpp"
#endif
