// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/least_peak.hpp"

namespace remat::detail {

/// In which order the operations of a stage run.
enum class stage_order : std::uint8_t {
  listed,     ///< in the order of the line
  least_peak  ///< in an order of little memory, found for each purpose of a forward and for the backward
};

/// A training step as a chain of stages: the operations of the forward and of the backward of each stage, their times,
/// and their bytes. Stages, operations and tensors are indices; stages count from 1 to L.
///
/// Stage s holds the forward operations between two cuts. A backward operation belongs to the highest stage that makes
/// or reads one of its forward inputs, but to no higher one than its gradient inputs; without forward inputs, to the
/// lowest stage of its gradient inputs. All tensors that cross a cut are the input of the stage behind it. An operation
/// that must not run twice runs in the first forward of its stage alone, and its outputs stay. So do operations that
/// write to one tensor together with such an operation, with one of another stage, or with one of the backward part. A
/// forward runs the operations that its purpose needs; the first forward of a stage also makes its final outputs.
///
/// Bytes are counted by these rules. x(s, j) is the tensors that stages s … j make and that are read behind j, by a
/// forward or by a backward of a later stage. All other sizes come from a run of the stage by itself.
///
/// The counts never promise too much. Take a schedule that `slot_table` finds for the sizes in bytes, or in slots
/// rounded up. The operations of `expand`, scheduled by `schedule_computes`, take at most its time and `standing_time`,
/// and at most its memory and `standing_bytes`. They often take less: an operation whose result nobody reads does not
/// run, and a tensor that crosses stages is freed after its last reader.
///
/// Keeps a reference to the flat graph.
class stage_chain {
 public:
  /// Marks the absence of a stage.
  static constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();

  /// O(operations + reads and writes + L²) time and O(operations + tensors + L²) memory, and the time of
  /// `operation_sequence::least_peak_order` for each stage where `order` asks for it.
  stage_chain(const flat_graph& g, const forward_line& line, const cut_list& cuts,
              stage_order order = stage_order::listed);

  /// L, the number of stages.
  [[nodiscard]] std::uint32_t length() const noexcept { return length_; }
  /// The forward operations of a stage, in the order of the line.
  [[nodiscard]] std::span<const std::uint32_t> forward(std::uint32_t stage) const noexcept { return forward_[stage]; }
  /// The backward operations of a stage, in the listed order.
  [[nodiscard]] std::span<const std::uint32_t> backward(std::uint32_t stage) const noexcept { return backward_[stage]; }

  /// \name Times of a stage, in the unit of the cost model
  /// Each forward is one that runs again; `standing_time` is what the first one takes beyond that.
  /// \{

  /// Of a forward for the tensors that cross the end of the stage.
  [[nodiscard]] double fast_time(std::uint32_t stage) const noexcept { return fast_time_[stage]; }
  /// Of a forward for all that is saved.
  [[nodiscard]] double forward_time(std::uint32_t stage) const noexcept { return forward_time_[stage]; }
  /// Of a forward for the stage's own backward, right before it.
  [[nodiscard]] double last_forward_time(std::uint32_t stage) const noexcept { return last_forward_time_[stage]; }
  /// Of the backward.
  [[nodiscard]] double backward_time(std::uint32_t stage) const noexcept { return backward_time_[stage]; }
  /// The most time that the first forwards of all stages take beyond those times: of operations that run once, and of
  /// operations that make standing tensors.
  [[nodiscard]] double standing_time() const noexcept { return standing_time_; }
  /// \}

  /// \name Bytes of a stage
  /// \{

  /// x(s, j). Precondition: 1 ≤ s ≤ j ≤ L.
  [[nodiscard]] std::int64_t crossing_bytes(std::uint32_t s, std::uint32_t j) const noexcept {
    return crossing_[s * (std::size_t{length_} + 1) + j];
  }
  /// The transient tensors: those that cross the end of the stage, and that the forward of one later stage reads and
  /// nothing else. They are free when that forward has run. Precondition: 0 ≤ stage ≤ L.
  [[nodiscard]] std::int64_t transient_bytes(std::uint32_t stage) const noexcept { return transient_[stage]; }
  /// The tensors that stage s makes for a backward of a stage up to t, or for several later forwards the first of which
  /// is of a stage up to t. Precondition: 1 ≤ s ≤ t ≤ L.
  [[nodiscard]] std::int64_t saved_bytes(std::uint32_t s, std::uint32_t t) const noexcept {
    return saved_[s * (std::size_t{length_} + 1) + t];
  }
  /// The gradients that later stages make for the backward of this stage and of the stages before it.
  [[nodiscard]] std::int64_t gradient_bytes(std::uint32_t stage) const noexcept { return gradient_[stage]; }
  /// The peak of a forward for the crossing tensors, without its input and the waiting gradients.
  [[nodiscard]] std::int64_t fast_peak(std::uint32_t stage) const noexcept { return fast_peak_[stage]; }
  /// The peak of a forward for all that is saved, with the transient part of its input until that is free, without the
  /// waiting gradients.
  [[nodiscard]] std::int64_t forward_peak(std::uint32_t stage) const noexcept { return forward_peak_[stage]; }
  /// The same of a forward for the stage's own backward, right before it.
  [[nodiscard]] std::int64_t last_forward_peak(std::uint32_t stage) const noexcept { return last_forward_peak_[stage]; }
  /// The peak of the backward, with the saved tensors and the gradients.
  [[nodiscard]] std::int64_t backward_peak(std::uint32_t stage) const noexcept { return backward_peak_[stage]; }
  /// The final outputs that the backward of the stage makes. They stay.
  [[nodiscard]] std::int64_t output_bytes(std::uint32_t stage) const noexcept { return outputs_[stage]; }
  /// The standing tensors: final outputs of the forward part, and tensors that are made once and read by the backward
  /// or by a forward that may run again. They stay whatever the schedule is.
  [[nodiscard]] std::int64_t standing_bytes() const noexcept { return standing_; }
  /// \}

  /// True when the backward of the stage reads nothing that a forward can make again, and no backward of this stage or
  /// an earlier one reads what the stage makes.
  [[nodiscard]] bool backward_reads_no_forward(std::uint32_t stage) const noexcept { return reads_none_[stage] != 0; }

  /// \name Tensors and operations
  /// \{

  /// The last stage whose forward makes the tensor, or `nowhere`.
  [[nodiscard]] std::uint32_t made_in(std::uint32_t tensor) const noexcept { return made_[tensor]; }
  /// The last stage that reads the tensor. Precondition: a forward makes it.
  [[nodiscard]] std::uint32_t last_read_in(std::uint32_t tensor) const noexcept { return last_[tensor]; }
  /// The lowest stage whose backward reads the tensor, or `nowhere`.
  [[nodiscard]] std::uint32_t lowest_backward_of(std::uint32_t tensor) const noexcept { return gradient_end_[tensor]; }
  /// The first stage behind `made_in(tensor)` whose forward reads the tensor, or `nowhere`.
  [[nodiscard]] std::uint32_t first_read_behind(std::uint32_t tensor) const noexcept { return first_read_[tensor]; }
  /// The least t for which the tensor is one of `saved_bytes(made_in(tensor), t)`. Precondition: a forward makes the
  /// tensor, which is neither transient nor standing.
  [[nodiscard]] std::uint32_t saved_from(std::uint32_t tensor) const noexcept {
    return std::max(made_[tensor], std::min(gradient_end_[tensor], first_read_[tensor]));
  }
  /// True for the tensors of `transient_bytes`.
  [[nodiscard]] bool is_transient(std::uint32_t tensor) const noexcept { return transient_tensor_[tensor] != 0; }
  /// True for the tensors of `standing_bytes`.
  [[nodiscard]] bool stands(std::uint32_t tensor) const noexcept { return standing_tensor_[tensor] != 0; }
  /// True when the forward operation runs in the first forward of its stage alone.
  [[nodiscard]] bool runs_once(std::uint32_t operation) const noexcept { return once_[operation] != 0; }
  /// \}

  /// Operations that take the place of those of a step; null: the stage's own.
  using replacement = std::function<const std::vector<std::uint32_t>*(const chain_step&)>;

  /// The operations of a schedule of the chain, in order, for `schedule_computes`. The purpose of a forward follows
  /// from the next step of its stage: another forward, its backward right away, or its backward later. Steps of the
  /// loss, stage L + 1, are skipped. `instead` gives other operations for some of the steps. O(steps + operations of
  /// the steps) time.
  [[nodiscard]] std::vector<std::uint32_t> expand(std::span<const chain_step> steps,
                                                  const replacement& instead = nullptr) const;

  /// The same, but each forward of a stage runs all of its operations, and all operations are in the listed order. The
  /// counts are no bound on these operations; now and then they need less memory. `schedule_computes` drops the runs
  /// whose results nobody reads; of several runs that make a final output it keeps the last one.
  [[nodiscard]] std::vector<std::uint32_t> expand_whole(std::span<const chain_step> steps) const;

 private:
  /// The purpose of a forward: the tensors that cross the end of its stage, those and all that is saved, or the tensors
  /// that its own backward reads.
  enum class purpose : std::uint8_t { crossing, all, own_backward };

  /// An operation of a forward. Not `again`: it runs in the first forward of the stage alone.
  struct run {
    std::uint32_t operation;
    bool again;
  };

  void assign_stages(const forward_line& line, const cut_list& cuts);
  void mark_once(const forward_line& line);
  void find_last_uses();
  void find_standing_and_transient();
  void measure_tensors();
  void measure_gradients();
  void measure_stage(std::uint32_t s);
  void find_idle_backwards();

  void choose_runs(std::uint32_t s, purpose why);
  std::int64_t order_forward(std::uint32_t s, purpose why);
  std::int64_t order_backward(std::uint32_t s);
  void touch_in_backward(std::uint32_t s, std::uint32_t t, bool writes);
  void touch(std::uint32_t t, bool writes, bool there, bool stays);
  template <class Item>
  std::int64_t order_sequence(std::vector<Item>& items);

  [[nodiscard]] double time_of(std::uint32_t s, purpose why, bool again) const;
  [[nodiscard]] std::vector<purpose> find_purposes(std::span<const chain_step> steps) const;
  [[nodiscard]] bool ends_as_input(std::uint32_t s, std::uint32_t t) const;
  [[nodiscard]] bool is_kept(std::uint32_t s, purpose why, std::uint32_t t) const;
  [[nodiscard]] bool is_unread(std::uint32_t t) const;
  [[nodiscard]] std::uint32_t highest_maker(std::uint32_t t) const;

  const flat_graph& graph_;
  stage_order order_;
  std::uint32_t length_ = 0;
  // [stage]
  std::vector<std::vector<std::uint32_t>> forward_, backward_, ordered_backward_;
  std::vector<std::array<std::vector<run>, 3>> runs_;  // by purpose
  std::vector<double> fast_time_, forward_time_, last_forward_time_, backward_time_;
  std::vector<std::int64_t> transient_, gradient_, fast_peak_, forward_peak_, last_forward_peak_, backward_peak_,
      outputs_;
  std::vector<std::uint8_t> reads_none_;
  // [stage · (L + 1) + stage]
  std::vector<std::int64_t> crossing_, saved_;
  // [operation]
  std::vector<std::uint32_t> stage_;
  std::vector<std::uint8_t> is_forward_, once_;
  // [tensor]
  std::vector<std::uint32_t> made_, last_, first_read_, gradient_end_;
  std::vector<std::uint8_t> backward_reader_, standing_tensor_, transient_tensor_;
  std::int64_t standing_ = 0;
  double standing_time_ = 0;
  // While the runs of a stage are chosen: 2 for a tensor that every run makes, 1 for one of the first run alone.
  std::vector<std::uint8_t> wanted_;
  // While a stage is ordered: its operations, the numbers of their tensors, and the tensors that have a number.
  operation_sequence sequence_;
  std::vector<std::uint32_t> number_, numbered_;
};

/// The number of different stages of a chain: those that agree in all times and bytes, in what they make and save for
/// the next stages, and in their numbers of operations count as one. O(L log L) time.
[[nodiscard]] std::size_t count_distinct_stages(const stage_chain& chain);

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/chain/impl/stage_chain.hpp"
#endif
