// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/problem/problem.hpp"
#include "remat/refine/detail/least_peak.hpp"

namespace remat::detail {

/// In which order the operations of a stage run.
enum class stage_order : std::uint8_t {
  listed,     ///< in the order of the line
  least_peak  ///< in an order of little memory, found for each purpose of a forward and for the backward
};

/// The times and bytes of one stage of a `stage_chain`. Times are in the unit of the cost model. Each forward is one
/// that runs again; `stage_chain::standing_time` is what the first one takes beyond that.
struct stage_figures {
  double fast_time = 0;          ///< of a forward for the tensors that cross the end of the stage
  double forward_time = 0;       ///< of a forward for all that is saved
  double last_forward_time = 0;  ///< of a forward for the stage's own backward, right before it
  double backward_time = 0;      ///< of the backward
  /// The transient tensors: those that cross the end of the stage, and that the forward of one later stage reads and
  /// nothing else. They are free when that forward has run.
  std::int64_t transient_bytes = 0;
  std::int64_t gradient_bytes = 0;  ///< gradients that later stages make for this backward and those of earlier stages
  std::int64_t output_bytes = 0;    ///< final outputs that the backward makes; they stay
  std::int64_t fast_peak = 0;       ///< of that forward, without its input and the waiting gradients
  /// The peak of a forward for all that is saved, with the transient part of its input until that is free, without the
  /// waiting gradients.
  std::int64_t forward_peak = 0;
  std::int64_t last_forward_peak = 0;  ///< the same of a forward for the stage's own backward
  std::int64_t backward_peak = 0;      ///< of the backward, with the saved tensors and the gradients
  /// True if the backward of the stage reads nothing that a forward can make again, and no backward of this stage or an
  /// earlier one reads what the stage makes.
  bool idle = true;

  /// Orders by all members.
  friend auto operator<=>(const stage_figures&, const stage_figures&) = default;
};

/// Who makes and reads a tensor of a `stage_chain`.
struct tensor_use {
  static constexpr std::uint32_t nowhere = std::numeric_limits<std::uint32_t>::max();  ///< the absence of a stage

  std::uint32_t made_in = nowhere;          ///< the last stage whose forward makes it
  std::uint32_t last_read = 0;              ///< the last stage that reads it, if a forward makes it
  std::uint32_t first_read = nowhere;       ///< the first stage behind `made_in` whose forward reads it
  std::uint32_t lowest_backward = nowhere;  ///< the lowest stage whose backward reads it
  bool transient = false;                   ///< one of `stage_figures::transient_bytes`
  bool stands = false;                      ///< one of `stage_chain::standing_bytes`

  /// The least t for which the tensor is one of `saved_bytes(made_in, t)`. Precondition: a forward makes the tensor,
  /// which is neither transient nor standing.
  [[nodiscard]] std::uint32_t saved_from() const noexcept {
    return std::max(made_in, std::min(lowest_backward, first_read));
  }
};

/// A training step as a chain of stages: the operations of the forward and of the backward of each stage, their times,
/// and their bytes. Stages, operations and tensors are indices; stages count from 1 to L.
///
/// Stage s holds the forward operations between two cuts. A backward operation belongs to stage min(f, g): f is the
/// highest stage that makes or reads one of its forward inputs, g the lowest stage that makes one of its gradient
/// inputs; each is L without such inputs. All tensors that cross a cut are the input of the stage behind it. An
/// operation that must not run twice runs in the first forward of its stage alone, and its outputs stay. So do
/// operations that write to one tensor together with such an operation, with one of another stage, or with one of the
/// backward part. A forward runs the operations that its purpose needs; the first forward of a stage also makes its
/// final outputs.
///
/// x(s, j) is the tensors that stages s … j make and that are read behind j, by a forward or by a backward of a later
/// stage. All other sizes come from a run of the stage by itself.
///
/// The counts never promise too much. Take a schedule that `slot_table` finds for the sizes in bytes, or in slots
/// rounded up. The operations of `expand`, scheduled by `schedule_computes`, take at most its time and `standing_time`,
/// and at most its memory and `standing_bytes`. They often take less: an operation whose result nobody reads does not
/// run, and a tensor that crosses stages is freed after its last reader.
class stage_chain {
 public:
  /// Marks the absence of a stage.
  static constexpr std::uint32_t nowhere = tensor_use::nowhere;

  /// Keeps a reference to `g`. O(operations + reads and writes + L²) time and O(operations + tensors + L²) memory, and
  /// with `stage_order::least_peak` the time of `operation_sequence::least_peak_order` for each stage.
  stage_chain(const flat_graph& g, const forward_line& line, const cut_list& cuts,
              stage_order order = stage_order::listed);

  /// L, the number of stages.
  [[nodiscard]] std::uint32_t length() const noexcept { return length_; }
  /// The times and bytes of a stage. Precondition: 0 ≤ stage ≤ L; of stage 0, the chain's input, only
  /// `transient_bytes` has a meaning.
  [[nodiscard]] const stage_figures& operator[](std::uint32_t stage) const noexcept { return figures_[stage]; }
  /// The time of a stage's forward right before its backward, and of that backward. The first forward of the last stage
  /// makes everything: it does not run again.
  [[nodiscard]] double last_time(std::uint32_t stage) const noexcept {
    const stage_figures& f = figures_[stage];
    return (stage == length_ ? f.forward_time : f.last_forward_time) + f.backward_time;
  }
  /// The forward operations of a stage, in the order of the line.
  [[nodiscard]] std::span<const std::uint32_t> forward(std::uint32_t stage) const noexcept { return forward_[stage]; }
  /// The backward operations of a stage, in the listed order.
  [[nodiscard]] std::span<const std::uint32_t> backward(std::uint32_t stage) const noexcept { return backward_[stage]; }

  /// x(s, j) in bytes. Precondition: 1 ≤ s ≤ j ≤ L.
  [[nodiscard]] std::int64_t crossing_bytes(std::uint32_t s, std::uint32_t j) const noexcept {
    return crossing_[at(s, j)];
  }
  /// The tensors that stage s makes for a backward of a stage up to t, or for several later forwards the first of which
  /// is of a stage up to t. Precondition: 1 ≤ s ≤ t ≤ L.
  [[nodiscard]] std::int64_t saved_bytes(std::uint32_t s, std::uint32_t t) const noexcept { return saved_[at(s, t)]; }
  /// The standing tensors: final outputs of the forward part, and tensors that are made once and read by the backward
  /// or by a forward that may run again. They stay whatever the schedule is.
  [[nodiscard]] std::int64_t standing_bytes() const noexcept { return standing_; }
  /// The most time that the first forwards of all stages take beyond the times of the stages: of operations that run
  /// once, and of operations that make standing tensors.
  [[nodiscard]] double standing_time() const noexcept { return standing_time_; }

  /// The makers and readers of a tensor.
  [[nodiscard]] const tensor_use& use_of(std::uint32_t tensor) const noexcept { return uses_[tensor]; }
  /// The stage of an operation; `nowhere` if the operation is not needed.
  [[nodiscard]] std::uint32_t stage_of(std::uint32_t operation) const noexcept { return stage_[operation]; }
  /// True if the operation is one of a forward.
  [[nodiscard]] bool is_forward(std::uint32_t operation) const noexcept { return is_forward_[operation] != 0; }
  /// True if the forward operation runs in the first forward of its stage alone.
  [[nodiscard]] bool runs_once(std::uint32_t operation) const noexcept { return once_[operation] != 0; }

  /// Operations that take the place of those of a step; null: the stage's own.
  using replacement = std::function<const std::vector<std::uint32_t>*(const chain_step&)>;

  /// The operations of a schedule of the chain, in order, for `schedule_computes`. Steps of the loss, stage L + 1, are
  /// skipped. `instead` gives other operations for some of the steps. O(steps + operations of the steps) time.
  ///
  /// The purpose of a forward follows from the next step of its stage: another forward, its backward right away, or its
  /// backward later. With `whole`, each forward runs all operations of its stage instead, and all operations are in the
  /// listed order: the counts are no bound on these operations, which now and then need less memory.
  /// `schedule_computes` drops the runs whose results nobody reads; of several runs that make a final output it keeps
  /// the last one.
  [[nodiscard]] std::vector<std::uint32_t> expand(std::span<const chain_step> steps, bool whole = false,
                                                  const replacement& instead = nullptr) const;

 private:
  /// The purpose of a forward: the tensors that cross the end of its stage, those and all that is saved, or the tensors
  /// that its own backward reads.
  enum class purpose : std::uint8_t { crossing, all, own_backward };

  /// An operation of a forward. Not `again`: it runs in the first forward of the stage alone.
  struct run {
    std::uint32_t operation;
    bool again;
  };

  [[nodiscard]] std::size_t at(std::uint32_t s, std::uint32_t j) const noexcept {
    return s * (std::size_t{length_} + 1) + j;
  }

  void assign_stages(const forward_line& line, const cut_list& cuts);
  void mark_once(const forward_line& line);
  void find_uses();
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
  [[nodiscard]] bool is_kept(std::uint32_t s, purpose why, std::uint32_t t) const;
  [[nodiscard]] bool is_unread(std::uint32_t t) const;
  [[nodiscard]] std::uint32_t highest_maker(std::uint32_t t) const;

  const flat_graph& graph_;
  stage_order order_;
  std::uint32_t length_ = 0;
  // [stage]
  std::vector<stage_figures> figures_;
  std::vector<std::vector<std::uint32_t>> forward_, backward_, ordered_backward_;
  std::vector<std::array<std::vector<run>, 3>> runs_;  // by purpose
  // [at(stage, stage)]
  std::vector<std::int64_t> crossing_, saved_;
  // [operation]
  std::vector<std::uint32_t> stage_;
  std::vector<std::uint8_t> is_forward_, once_;
  // [tensor]
  std::vector<tensor_use> uses_;
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
