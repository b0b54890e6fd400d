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

#include "remat/core/run.hpp"
#include "remat/mip/concepts.hpp"
#include "remat/mip/model.hpp"

namespace remat::detail::mip_answers {

/// The best values that a backend has heard of from a solver whose word is a hint: they are checked before they count.
class best_values {
 public:
  /// The model and the options must outlive the object.
  best_values(const mip_model& model, const mip_options& options) : model_(model), options_(options) {}

  /// Rounds integer columns to the nearest whole number, and takes the values if they then meet the model within 1e-5
  /// and are better than the best ones (`mip_options::on_incumbent` hears of it). Returns true if they meet the model.
  bool take(std::span<const double> values) {
    std::vector<double> rounded(values.begin(), values.end());
    for (std::size_t j = 0; j < std::min(rounded.size(), model_.num_columns()); ++j)
      if (model_.is_integer(j)) rounded[j] = std::round(rounded[j]);
    if (!(model_.violation(rounded) <= 1e-5)) return false;
    const double objective = model_.objective(rounded);
    if (!(objective < result.objective)) return true;
    result.objective = objective;
    result.values = std::move(rounded);
    if (options_.on_incumbent) options_.on_incumbent(result.values, objective);
    return true;
  }

  /// True when some values meet the model.
  [[nodiscard]] bool found() const noexcept { return result.objective < mip_model::infinite; }
  /// The status of a search that was stopped.
  [[nodiscard]] mip_status stopped_status() const noexcept {
    return found() ? mip_status::feasible : mip_status::no_solution;
  }

  /// Ends the solve: moves the result out.
  [[nodiscard]] mip_result finish(mip_status status, const run_clock& clock) {
    result.status = status;
    result.seconds = clock.seconds();
    return std::move(result);
  }
  /// Ends the solve after the solver has said that no values exist; known values contradict it. `solver` names it in
  /// the message.
  [[nodiscard]] mip_result infeasible(std::string_view solver, const run_clock& clock) {
    if (found()) {
      result.message = std::string(solver) + " says infeasible, but there are values that meet the model";
      return finish(mip_status::feasible, clock);
    }
    result.bound = mip_model::infinite;
    return finish(mip_status::infeasible, clock);
  }
  /// The answer to a model without columns, which solvers may refuse.
  [[nodiscard]] mip_result without_columns(const run_clock& clock) {
    const bool possible = model_.violation({}) <= 1e-9;
    result.objective = result.bound = possible ? model_.offset : mip_model::infinite;
    return finish(possible ? mip_status::optimal : mip_status::infeasible, clock);
  }

  mip_result result{};  ///< what is known so far

 private:
  const mip_model& model_;
  const mip_options& options_;
};

}  // namespace remat::detail::mip_answers
