// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "remat/core/control.hpp"
#include "remat/mip/model.hpp"

namespace remat {

/// How a backend's search ended. `feasible`: there are values, not proven to be the best. `no_solution`: stopped before
/// there were any; that proves nothing. `failed`: the backend broke down; `mip_result::message` says how.
enum class mip_status : std::uint8_t { optimal, feasible, infeasible, unbounded, no_solution, failed };

[[nodiscard]] constexpr std::string_view to_string(mip_status s) noexcept {
  switch (s) {
    case mip_status::optimal:
      return "optimal";
    case mip_status::feasible:
      return "feasible";
    case mip_status::infeasible:
      return "infeasible";
    case mip_status::unbounded:
      return "unbounded";
    case mip_status::no_solution:
      return "no_solution";
    case mip_status::failed:
      return "failed";
  }
  return "unknown";
}

struct mip_options {
  /// Values to start from, one for every column; empty: none. What breaks the model is not used.
  std::vector<double> start{};
  double relative_gap = 0;  ///< optimal enough: objective − bound ≤ this × |objective|
  /// Called with every better solution (values, objective) and every better bound.
  std::function<void(std::span<const double>, double)> on_incumbent{};
  std::function<void(double)> on_bound{};
  /// `work_limit`: nodes of the search tree. `on_progress` gets objective and bound as times.
  run_control run{};
};

/// A backend's answer. Floating point: objective and bound are what the backend says within its tolerances, no proof.
struct mip_result {
  mip_status status = mip_status::no_solution;
  std::vector<double> values{};                                ///< integer columns have whole values
  double objective = std::numeric_limits<double>::infinity();  ///< of the values
  double bound = -std::numeric_limits<double>::infinity();     ///< no solution is below; infinite: there is none
  std::uint64_t nodes = 0;                                     ///< of the search tree
  double seconds = 0;                                          ///< wall clock
  std::string message{};                                       ///< one line for people; may be empty
};

/// A backend that solves `mip_model`s: a stateless object with a name.
///
/// `b.solve(model, options)` keeps the model as it is and may be called from several threads at once. It honours the
/// stop token and the time limit of `options.run` (each model says how soon), calls the callbacks on the thread that
/// called it, lets through what they throw, and returns the best values found by then, never worse than a valid start.
/// The values meet the model within 1e-5 as `mip_model::violation` measures it.
///
/// Models: `branch_and_bound_backend`, `cbc_backend`.
template <class B>
concept mip_backend = requires(const B& b, const mip_model& model, const mip_options& options) {
  { B::name } -> std::convertible_to<std::string_view>;
  { b.solve(model, options) } -> std::same_as<mip_result>;
};

}  // namespace remat
