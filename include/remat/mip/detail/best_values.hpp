// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "remat/core/detail/words.hpp"
#include "remat/core/error.hpp"
#include "remat/core/run.hpp"
#include "remat/mip/model.hpp"

namespace REMAT_NAMESPACE::detail {

/// The values with those of integer columns rounded to the nearest whole number.
inline std::vector<double> rounded_values(const mip_model& model, std::span<const double> values) {
  std::vector<double> rounded(values.begin(), values.end());
  for (std::size_t j = 0; j < std::min(rounded.size(), model.num_columns()); ++j)
    if (model.is_integer(j)) rounded[j] = std::round(rounded[j]);
  return rounded;
}

/// One solve of a backend: its clock, and the answer as far as it is known. The word of a solver is a hint: values are
/// checked before they count.
class best_values {
 public:
  /// `backend`: its name. All arguments must outlive the object. Throws `bad_argument` for a `relative_gap` that is NaN
  /// or negative.
  best_values(std::string_view backend, const mip_model& model, const mip_options& options)
      : clock(options.run), backend_(backend), model_(model), options_(options) {
    if (!(options.relative_gap >= 0))
      throw bad_argument(std::string(backend) + ": relative_gap is " + detail::number_text(options.relative_gap) +
                         "; it must be 0 or more");
  }

  /// Rounds integer columns to the nearest whole number, and takes the values if they then meet the model within
  /// `mip_tolerance` and are better than the best ones (`mip_options::on_incumbent` hears of it). Returns true if they
  /// meet the model.
  bool take(std::span<const double> values) {
    std::vector<double> rounded = rounded_values(model_, values);
    if (!(model_.violation(rounded) <= mip_tolerance)) return false;
    const double objective = model_.objective(rounded);
    if (!(objective < result.objective)) return true;
    result.objective = objective;
    result.values = std::move(rounded);
    if (options_.on_incumbent) options_.on_incumbent(result.values, objective);
    return true;
  }
  /// Takes a bound if it is better than the best one (`mip_options::on_bound` hears of it).
  void take_bound(double bound) {
    if (!(bound > result.bound)) return;
    result.bound = bound;
    if (options_.on_bound) options_.on_bound(bound);
  }

  /// True when some values meet the model.
  [[nodiscard]] bool found() const noexcept { return result.objective < mip_model::infinite; }
  /// The status of a search that was stopped.
  [[nodiscard]] mip_status stopped_status() const noexcept {
    return found() ? mip_status::feasible : mip_status::no_solution;
  }
  /// The bound that holds if the values are optimal within the options' gap and the tolerances of solvers.
  [[nodiscard]] double bound_of_optimum() const noexcept {
    const double size = std::abs(result.objective);
    return result.objective - std::max(options_.relative_gap * size, 1e-6 * std::max(1.0, size));
  }

  void report() {
    clock.report(
        {.solver = backend_, .best_objective = result.objective, .lower_bound = result.bound, .done = result.nodes});
  }

  /// Ends the solve: moves the result out.
  [[nodiscard]] mip_result finish(mip_status status) {
    result.status = status;
    result.seconds = clock.seconds();
    result.work = std::max(result.work, clock.work_done());
    return std::move(result);
  }
  /// Ends the solve after the solver has said that no values exist, which known values contradict. `solver` names it in
  /// the message.
  [[nodiscard]] mip_result infeasible(std::string_view solver) {
    if (found()) {
      result.message = std::string(solver) + " says infeasible, but there are values that meet the model";
      return finish(mip_status::feasible);
    }
    result.bound = mip_model::infinite;
    return finish(mip_status::infeasible);
  }
  /// The answer to a model without columns, which solvers may refuse.
  [[nodiscard]] mip_result without_columns() {
    const bool possible = model_.violation({}) <= 1e-9;
    result.objective = result.bound = possible ? model_.offset : mip_model::infinite;
    return finish(possible ? mip_status::optimal : mip_status::infeasible);
  }

  run_clock clock;      ///< the solve's clock
  mip_result result{};  ///< the result so far

 private:
  std::string_view backend_;
  const mip_model& model_;
  const mip_options& options_;
};

}  // namespace REMAT_NAMESPACE::detail
