// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/mip/detail/row_writer.hpp"

namespace REMAT_NAMESPACE::detail {

/// \file
/// Shared parts of the two integer programs in phases, `checkmate_model` and `level_model`.
///
/// Both programs have T runs and T phases. Phase t ends with the first run of run t. Before it, earlier runs may take
/// place again, each at most once, in the listed order. A run in a phase is an *event*. Both programs use the same rows
/// for the tensors that are held between events, and for the memory that they take.

/// Sizes in bytes as numbers of a model: rounded up to whole units, then scaled so that the budget is at most 1024.
///
/// The unit is `divisor`, which divides all sizes, if the budget has at most `max_units` of them; otherwise it is the
/// least multiple that is large enough. The budget is rounded down. So what fits in the model fits in bytes.
class size_units {
 public:
  /// Units of one byte, for a budget of 0.
  size_units() = default;
  /// Preconditions: budget ≥ 0, divisor ≥ 0 (0 counts as 1), max_units ≥ 1.
  size_units(std::int64_t budget, std::int64_t divisor, std::int64_t max_units)
      : unit_(std::max<std::int64_t>(divisor, 1)) {
    if (budget / unit_ > max_units) {
      const std::int64_t least = (budget - 1) / max_units + 1;
      unit_ = (least + unit_ - 1) / unit_ * unit_;
    }
    capacity_ = budget / unit_;
    for (std::int64_t c = capacity_; c > 1024; c /= 2) weight_ /= 2;
  }

  /// Whole units, rounded up.
  [[nodiscard]] std::int64_t units(std::int64_t bytes) const noexcept { return (bytes + unit_ - 1) / unit_; }
  /// The budget in whole units, rounded down.
  [[nodiscard]] std::int64_t capacity_units() const noexcept { return capacity_; }
  /// The units of `bytes` as a number of the model.
  [[nodiscard]] double size(std::int64_t bytes) const noexcept { return static_cast<double>(units(bytes)) * weight_; }
  /// The budget as a number of the model, at most 1024.
  [[nodiscard]] double capacity() const noexcept { return static_cast<double>(capacity_) * weight_; }

 private:
  std::int64_t unit_ = 1, capacity_ = 0;
  double weight_ = 1;
};

/// The factor from times to a model's objective: 1 for whole times of a moderate sum, else such that the sum is 1000.
[[nodiscard]] constexpr double objective_scale(double time, bool whole_times) noexcept {
  return time > 0 && !(whole_times && time <= 1e5) ? 1000 / time : 1;
}

/// The last reads that the tensors of a program in phases may have.
class phase_uses {
 public:
  /// The uses in a program of `runs` runs and `tensors` tensors, none of which is used yet.
  phase_uses(std::uint32_t runs, std::size_t tensors) : runs_(runs), last_read_(tensors, 0), used_(tensors, 0) {}

  /// A number that orders events: by phase, then by run.
  [[nodiscard]] std::uint64_t event(std::uint32_t phase, std::uint32_t run) const noexcept {
    return std::uint64_t{phase} * (std::uint64_t{runs_} + 1) + run;
  }

  void clear() {
    std::fill(last_read_.begin(), last_read_.end(), std::uint64_t{0});
    std::fill(used_.begin(), used_.end(), std::uint8_t{0});
  }
  /// Notes that the tensor must be held at the end.
  void add_output(std::uint32_t tensor) {
    used_[tensor] = 1;
    last_read_[tensor] = std::numeric_limits<std::uint64_t>::max();
  }
  /// Notes that `run` may read the tensor in `phase`.
  void add_read(std::uint32_t tensor, std::uint32_t phase, std::uint32_t run) {
    used_[tensor] = 1;
    last_read_[tensor] = std::max(last_read_[tensor], event(phase, run));
  }

  /// True when some event may read the tensor, or it is an output.
  [[nodiscard]] bool is_used(std::uint32_t tensor) const { return used_[tensor] != 0; }
  /// True when an event after `run` in `phase` may read the tensor, or the tensor is an output.
  [[nodiscard]] bool is_used_after(std::uint32_t tensor, std::uint32_t phase, std::uint32_t run) const {
    return used_[tensor] && last_read_[tensor] > event(phase, run);
  }
  /// True when an event of this phase or a later one may read the tensor.
  [[nodiscard]] bool is_used_from(std::uint32_t tensor, std::uint32_t phase) const {
    return used_[tensor] && last_read_[tensor] >= event(phase, 0);
  }
  /// The last phase in which an event may read the tensor. Precondition: there is a run.
  [[nodiscard]] std::uint32_t last_phase(std::uint32_t tensor) const {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(last_read_[tensor] / (std::uint64_t{runs_} + 1), runs_ - 1));
  }

 private:
  std::uint32_t runs_;
  std::vector<std::uint64_t> last_read_;  // an event
  std::vector<std::uint8_t> used_;
};

/// The first phase in which runs may take place again.
///
/// Once it is fixed that nothing runs again before some phase, `find_uses(phase)` tells which tensors may be read from
/// then on. If all of these fit together before `first_that_does_not_fit()`, all of them may be kept until then, so no
/// earlier run needs to take place again. Each step back makes more runs and more reads possible, so the search begins
/// at the end (`phases`) and goes down until nothing changes. `stop()` ends it early.
template <class FindUses, class FirstThatDoesNotFit, class Stop>
[[nodiscard]] std::uint32_t find_first_phase(std::uint32_t phases, FindUses&& find_uses,
                                             FirstThatDoesNotFit&& first_that_does_not_fit, Stop&& stop) {
  std::uint32_t first = phases;
  for (;;) {
    find_uses(first);
    if (stop()) return first;
    const std::uint32_t tight = first_that_does_not_fit();
    if (tight >= first) return first;
    first = tight;
  }
}

/// How a tensor's presence changes at an event: its values before and after.
struct held_change {
  std::uint32_t tensor = 0;  ///< the tensor's number
  mip_value before{};        ///< whether the tensor is held before the event
  mip_value after{};         ///< whether the tensor is held after the event
};

/// The rows on tensors and memory. Base of the builders of both programs.
///
/// `held(x)` says whether tensor x is held at the point that the construction has reached: a column from 0 to 1 or a
/// constant. `memory()` is the sum of the sizes of all held tensors there; one equation carries it over each event.
class phase_model : public row_writer {
 public:
  /// `bytes`: of each tensor; must live as long as the model. `run`: when to stop building.
  phase_model(std::span<const std::int64_t> bytes, double max_columns, const run_control& run)
      : bytes_(bytes), max_columns_(max_columns), clock_(run), held_(bytes.size()) {}

  phase_model(const phase_model&) = delete;
  phase_model& operator=(const phase_model&) = delete;

  /// False once a limit or a stop request has been met, or the model has more than `max_columns` columns. The builder
  /// then leaves the model as it is. Reads the clock.
  [[nodiscard]] bool may_continue() {
    if (complete_) complete_ = !clock_.should_stop() && static_cast<double>(model_.num_columns()) <= max_columns_;
    return complete_;
  }

  /// False if building was stopped, or the model has more than `max_columns` columns: `may_continue` has said so.
  [[nodiscard]] bool is_complete() const noexcept { return complete_; }

  [[nodiscard]] const size_units& sizes() const noexcept { return sizes_; }
  /// The size of tensor x as a number of the model.
  [[nodiscard]] double tensor_size(std::uint32_t x) const { return sizes_.size(bytes_[x]); }
  /// The factor from times to the objective.
  [[nodiscard]] double time_scale() const noexcept { return time_scale_; }
  /// The time of the schedule of a solution with this objective, in the unit of the given times.
  [[nodiscard]] double time(double objective) const noexcept { return objective / time_scale_; }
  [[nodiscard]] std::size_t decisions() const noexcept { return decisions_; }

  /// The value that tells if tensor x is held at the point that the construction has reached.
  [[nodiscard]] const mip_value& held(std::uint32_t x) const { return held_[x]; }
  [[nodiscard]] const std::vector<mip_value>& all_held() const noexcept { return held_; }
  /// The size of all tensors that are held for certain.
  [[nodiscard]] double certain_memory() const noexcept { return certain_memory_; }

 protected:
  /// Sets the units of sizes and the factor of times, before any row is written.
  void set_scales(const size_units& sizes, double time_scale) {
    sizes_ = sizes;
    time_scale_ = time_scale;
  }

  /// A new column that decides whether a run of this time takes place.
  [[nodiscard]] mip_value new_decision(double time) {
    ++decisions_;
    return {model_.add_integer(time * time_scale_, 0, 1), 0};
  }

  /// Lets `value` say from here on whether tensor x is held.
  void hold(std::uint32_t x, const mip_value& value) {
    if (held_[x].is_constant(1)) certain_memory_ -= tensor_size(x);
    if (value.is_constant(1)) certain_memory_ += tensor_size(x);
    held_[x] = value;
  }

  /// A column that says whether x is held when the first phase begins.
  [[nodiscard]] mip_value hold_from_start(std::uint32_t x) {
    const mip_value value = new_column();
    hold(x, value);
    start_.push_back({x, value.column});
    return value;
  }

  /// Adds the column of the memory when the first phase begins.
  void add_start_memory() {
    memory_ = {model_.add_column(0, 0, sizes_.capacity()), 0};
    start_memory_ = memory_.column;
  }

  /// Adds the row that says that the start memory is the size of all tensors held then.
  void add_start_row() {
    certain_start_ = certain_memory_;
    for (std::uint32_t x = 0; x < held_.size(); ++x) add_term(held_[x], tensor_size(x));
    add_term(memory_, -1);
    end_row(0, 0);
  }

  /// The tensors that may be held when the first phase begins, with their columns.
  [[nodiscard]] std::span<const std::pair<std::uint32_t, std::uint32_t>> start() const noexcept { return start_; }
  /// Sets the columns of the start, and returns the memory there. `is_held`: of each tensor.
  double fill_in_start(std::span<double> values, std::span<const std::uint8_t> is_held) const {
    double memory = certain_start_;
    for (const auto& [x, column] : start_) {
      values[column] = is_held[x];
      if (is_held[x]) memory += tensor_size(x);
    }
    if (start_memory_ != none) values[start_memory_] = memory;
    return memory;
  }

  /// held ≥ Σ readers, or held = 1 if it is certain that one of them takes place.
  void require_held(const mip_value& held, std::span<const mip_value> readers, bool certain) {
    if (held.is_constant(1) || readers.empty()) return;
    add_term(held, 1);
    if (certain) return end_row(1, 1);
    for (const mip_value& r : readers) add_term(r, -1);
    end_row(0, infinite);
  }

  /// Adds the row after ≤ before + Σ makers.
  void limit_held(const mip_value& after, const mip_value& before, std::span<const mip_value> makers) {
    if (after.is_constant()) return;  // 0, or held for certain
    add_term(after, 1);
    add_term(before, -1);
    for (const mip_value& m : makers) add_term(m, -1);
    end_row(-infinite, 0);
  }

  /// Σ runs ≤ Σ kept: none of the alternative runs takes place unless something that it makes is held afterwards.
  void forbid_useless(std::span<const mip_value> runs, std::span<const mip_value> kept) {
    for (const mip_value& r : runs) add_term(r, 1);
    for (const mip_value& v : kept) add_term(v, -1);
    end_row(-infinite, 0);
  }

  /// memory + Σ terms (added before, by `add_term`) ≤ capacity.
  void end_peak_row() {
    add_term(memory_, 1);
    end_row(-infinite, sizes_.capacity());
  }

  /// Carries the memory over an event. Returns the column of the memory afterwards, or none if no memory changes.
  std::uint32_t carry_memory(std::span<const held_change> changes) {
    const auto moves = [&](const held_change& c) { return !(c.before == c.after) && tensor_size(c.tensor) != 0; };
    if (!std::any_of(changes.begin(), changes.end(), moves)) return none;
    for (const held_change& c : changes) {
      if (!moves(c)) continue;
      add_term(c.after, tensor_size(c.tensor));
      add_term(c.before, -tensor_size(c.tensor));
    }
    const mip_value after{model_.add_column(0, 0, sizes_.capacity()), 0};
    add_term(memory_, 1);
    add_term(after, -1);
    end_row(0, 0);
    memory_ = after;
    return after.column;
  }

 private:
  std::span<const std::int64_t> bytes_;
  double max_columns_;
  run_clock clock_;
  bool complete_ = true;
  size_units sizes_;
  double time_scale_ = 1;
  std::size_t decisions_ = 0;
  std::vector<mip_value> held_;  // whether each tensor is held at this point
  mip_value memory_{};
  double certain_memory_ = 0, certain_start_ = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> start_;  // tensor, column
  std::uint32_t start_memory_ = none;
};

}  // namespace REMAT_NAMESPACE::detail
