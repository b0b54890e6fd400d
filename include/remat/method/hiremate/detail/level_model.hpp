// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/method/hiremate/detail/level_problem.hpp"
#include "remat/mip/model.hpp"

namespace remat::detail {

namespace level_program {
class program;
}

/// Options of `level_model`.
struct level_model_options {
  /// Only schedules that take at most this long have to be solutions. A variant that is too long for that has no
  /// variables.
  double at_most = std::numeric_limits<double>::infinity();
  /// The budget in units of size: sizes are rounded up to whole units, the budget is rounded down. Nothing is lost if
  /// the greatest common divisor of all sizes is large enough.
  std::int64_t units = std::int64_t{1} << 20;
  /// Nothing runs again before the phase of this run. With the first backward run, half of the columns go, and seldom a
  /// good schedule.
  std::uint32_t again_from = 0;
  /// Runs before whose first run rows say what the later first runs need; see `level_model`.
  std::vector<std::uint32_t> moments{};
  /// Building ends when the model has more columns; see `level_model::is_complete`.
  double max_columns = std::numeric_limits<double>::infinity();
  run_control run{};  ///< only `stop` and the limits are used
};

/// HiRemate's hierarchical integer program (H-ILP) for one level. \cite gusak2025hiremate
///
/// Its T runs make T phases. Phase t ends with the first run of run t. Before it, earlier runs may take place again,
/// each at most once, in the listed order and in one variant.
///
/// R[t,k,o] (binary) says that run k takes place in phase t in variant o. Over the variants, R adds up to 1 in the
/// phase of the first run, and to at most 1 in later phases. All other variables follow from these, as in
/// `checkmate_model`. For each tensor, and between any two runs that may write or read it, a variable says whether it
/// is held there. Before a run, it is at least the *sum* of R over the variants that read the tensor. After a run, it
/// is at most its value before plus the sum of R over the variants that write the tensor. One equation for each run
/// carries the memory over it. The memory with the peak of the variant is within the budget while the run takes place.
/// A phantom is a tensor like others.
///
/// The program leaves out what some best solution of this form does without:
/// - a variant in a phase after which no tensor that it writes may be of use, and a variant that another one replaces:
///   that takes no longer, needs no more memory, and writes as many tensors that may be of use;
/// - a variant whose peak does not fit beside what it reads and what is held for certain;
/// - runs again in the phases before the first run that does not fit beside everything that may be of use later, and
///   the memory until then. Alternatives (tensors that not all variants of a run write) must be simple for that: one
///   other run alone reads them, it takes place once, and it finds all that it reads of a run in one variant of that;
/// - dropping a tensor that must stay: it is made once, and all variants of a later first run read it.
///
/// At *moments*, rows say what the relaxation lacks: in it, a fraction of a run in each of many phases needs only that
/// fraction of its inputs. Y, at most 1, is at most the sum of R of some variants over later phases. What a later first
/// run reads is held, or Y = 1 for its writers. What all variants of a Y read is held or made likewise, for Y.
/// Alternatives that the variants of one first run read count together.
///
/// The optimum, and infeasibility, hold for this form, not for the level. Differs from the paper: the program has no
/// variables for frees; a tensor of several runs has no variable for each contribution; phantoms may be dropped
/// anywhere; inner peaks are rows without variables; and see what is left out.
///
/// Size: about T²/2 × (variants + reads and writes) columns for runs that may take place again. Building polls at every
/// event of the program.
/// Throws `bad_argument` by `require_valid`, for a moment that is no run, for `at_most` or `max_columns` that is NaN,
/// and for `units` below 1.
class level_model {
 public:
  /// Builds the model for a budget in bytes. The model keeps the level.
  level_model(level_problem level, std::int64_t budget, const level_model_options& options = {});

  /// The integer program, to be given to a backend. Incomplete unless `is_complete()`.
  [[nodiscard]] const mip_model& model() const noexcept;
  /// The level that the constructor was given.
  [[nodiscard]] const level_problem& level() const noexcept;
  /// False if building was stopped, or the model has more than `max_columns` columns. Then no other function but
  /// `model` may be called.
  [[nodiscard]] bool is_complete() const noexcept;
  /// The number of columns that are decisions R.
  [[nodiscard]] std::size_t decisions() const noexcept;
  /// Nothing runs again before this phase.
  [[nodiscard]] std::uint32_t first_phase() const noexcept;
  /// The time of the schedule of a solution with this objective, in the unit of the level's times.
  [[nodiscard]] double time(double objective) const noexcept;
  /// The objective of a solution whose schedule takes this time: the reverse of `time`.
  [[nodiscard]] double objective(double time) const noexcept;

  /// An upper bound on the number of columns, without moments, before the model is built.
  /// Precondition: `require_valid(level)`. O(size of the level) time, apart from sorting.
  [[nodiscard]] static double size_estimate(const level_problem& level);

  /// The choices that the values say, in order. Runs without use are not left out. Values are rounded to the nearest
  /// whole number. The choices are not checked, since the values of a backend are a hint.
  [[nodiscard]] std::vector<level_problem::choice> decode(std::span<const double> values) const;
  /// Values for these choices, or for others that take no longer: without runs that are of no use, and with the
  /// variants that replace others. Nothing if the choices are not of the form, or not within the budget in units.
  [[nodiscard]] std::optional<std::vector<double>> encode(std::span<const level_problem::choice> choices) const;

 private:
  std::shared_ptr<const detail::level_program::program> program_;
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/hiremate/impl/level_model.hpp"
#endif
