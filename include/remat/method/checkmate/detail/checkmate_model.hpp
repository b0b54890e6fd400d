// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "remat/core/id.hpp"
#include "remat/core/run.hpp"
#include "remat/mip/model.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/schedule.hpp"

namespace remat::detail {

namespace checkmate_program {
class program;
}

/// Whether an operation runs again in a phase: as the program decides, never, or always.
enum class rerun : std::uint8_t {
  free,   ///< the program decides
  never,  ///< it does not run again
  always  ///< it runs again
};

/// Options of `checkmate_model`.
struct checkmate_model_options {
  /// Only schedules that take at most this long have to be solutions. An operation that is too long for that has no
  /// variables.
  double at_most = std::numeric_limits<double>::infinity();
  /// The budget in units of size: sizes are rounded up to whole units, the budget is rounded down. Nothing is lost if
  /// the greatest common divisor of all sizes is large enough.
  std::int64_t units = std::int64_t{1} << 20;
  /// First runs whose turnaround bound is added as rows (`turnaround_analysis`, in its form for the listed order).
  std::vector<op_id> moments{};
  /// `rule(a, o)` says whether operation o runs again in the phase that ends with the first run of operation a, for
  /// `rerun_limits` and for neighbourhoods of a schedule. Empty: the program decides everything. Called while the model
  /// is built.
  ///
  /// "always" for a run that nothing may read, or before the first phase of the program, is left out.
  std::function<rerun(op_id, op_id)> rule{};
  /// Building ends when the model has more columns; see `checkmate_model::is_complete`.
  double most_columns = std::numeric_limits<double>::infinity();
  run_control run{};  ///< only `stop` and the limits are used; one event of the program is a unit of work
};

/// Checkmate's integer program for one problem. \cite jain2020checkmate
///
/// The needed operations make T phases. Phase t ends with the first run of the t-th operation of the listed order.
/// Before it, earlier operations may run again, each at most once, in the listed order.
///
/// R[t,k] (binary) says that operation k runs again in phase t. All other variables follow from these. For each tensor,
/// and between any two runs that may write or read it, a variable says whether the tensor is held there. After a read
/// it is at most its value before. Before a read that takes place it is 1. After a write it is at most its value before
/// plus R. One equation for each run carries the memory over it. The program has no variables for frees, which
/// Checkmate's form has to linearise: a tensor is freed where it is held no longer.
///
/// The program leaves out what some best solution of this form does without:
/// - Nothing runs again in the phases before the first operation that does not fit beside every tensor that may be of
///   use later, and nothing is freed there. (The phases begin earlier if an operation adds to a tensor of several
///   producers that may run again.)
/// - R[t,k] is left out if no later event reads an output of k.
/// - An operation does not run again if none of its outputs is held afterwards.
///
/// A tensor that is there counts twice while a run makes it again, since it might as well have been freed before. Rows
/// that say that a held tensor must be read later do not raise the relaxation's bound, and slow it down.
///
/// A tensor of several producers that may run again has a variable for each contribution: all of them go when it is
/// freed, and none may be added twice. If none of its producers may run again, it is held from its first write on.
///
/// The optimum, and infeasibility, hold for this form, not for the problem.
///
/// Size: about T²/2 variables R for operations that may run twice, and as many others for each of their reads and
/// writes. Building polls at every event of the program.
/// Throws `bad_argument` for `at_most` or `most_columns` that is NaN, for `units` below 1, and for a moment that is no
/// operation.
class checkmate_model {
 public:
  /// Builds the model. It needs neither `p` nor `options` afterwards.
  explicit checkmate_model(const problem& p, const checkmate_model_options& options = {});

  /// The integer program, to be given to a backend. Incomplete unless `is_complete()`.
  [[nodiscard]] const mip_model& model() const noexcept;
  /// False if building was stopped, or the model has more than `most_columns` columns. Then no other function but
  /// `model` may be called.
  [[nodiscard]] bool is_complete() const noexcept;
  /// The number of columns that are decisions R.
  [[nodiscard]] std::size_t decisions() const noexcept;
  /// The number of phases in which operations may run again: all from the first one on in which that may be of use.
  [[nodiscard]] std::size_t phases() const noexcept;
  /// The time of the schedule of a solution with this objective, in the cost model's unit.
  [[nodiscard]] double time(double objective) const noexcept;
  /// The objective of a solution whose schedule takes this time: the reverse of `time`.
  [[nodiscard]] double objective(double time) const noexcept;

  /// Estimates the number of columns of the model before it is built, without `moments`. O(reads and writes) time.
  [[nodiscard]] static double size_estimate(const problem& p);

  /// The operations that run according to `values`, in order. Values are rounded to the nearest whole number.
  [[nodiscard]] std::vector<std::uint32_t> order(std::span<const double> values) const;
  /// The schedule of that order: runs without use are left out, and tensors are freed as early as possible. It is not
  /// checked, since the values of a backend are a hint.
  [[nodiscard]] schedule decode(std::span<const double> values) const;
  /// Checkmate's two-phase rounding of the values of a relaxation (section 5 of the paper).
  ///
  /// First, `keep(x)` says of each tensor and phase whether the tensor is kept until the phase begins; x is its value
  /// there, from 0 to 1. The paper's rounding keeps it where x > 0.5, or with probability x. Then each phase runs the
  /// fewest operations that make what its own operation reads, and what is kept longer. Returns all runs, in order, for
  /// `schedule_computes`. Their schedule may exceed the budget, and it is illegal where an operation would run twice
  /// that must not.
  [[nodiscard]] std::vector<std::uint32_t> round(std::span<const double> values,
                                                 const std::function<bool(double)>& keep) const;
  /// Values for the runs of a schedule, in the order of the program's form. Nothing if the schedule has another order
  /// of first runs, or if the runs are not within the budget in that order.
  [[nodiscard]] std::optional<std::vector<double>> encode(const schedule& plan) const;

 private:
  std::shared_ptr<const detail::checkmate_program::program> program_;
};

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/checkmate/impl/checkmate_model.hpp"
#endif
