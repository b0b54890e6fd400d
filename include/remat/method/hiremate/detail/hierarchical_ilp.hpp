// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "remat/core/run.hpp"
#include "remat/method/hiremate/detail/level_problem.hpp"
#include "remat/mip/concepts.hpp"

namespace remat::detail {

/// Options of `hierarchical_ilp`.
struct hierarchical_ilp_options {
  /// Choices to start from. Those that are no schedule, or not within the budget, are not used.
  std::vector<std::vector<level_problem::choice>> starts{};
  /// Hands the best start to the backend, too. Starts count in any case, and CBC searches longer for solutions if it
  /// has none: in ten seconds it found solutions as good or better without a start that was 2 to 4 % above them.
  bool warm_start = false;
  double gap = 0;         ///< end with a time of at most (1 + gap) × the bound of the program
  std::int64_t units = std::int64_t{1} << 20;  ///< `level_model_options::units`
  std::uint32_t again_from = 0;                ///< `level_model_options::again_from`
  std::vector<std::uint32_t> moments{};        ///< `level_model_options::moments`
  /// A model of more columns is not solved: its first linear program alone would take minutes.
  double most_columns = 60'000;
  std::uint64_t nodes = 100;  ///< of the backend's search, unless the only limit is one on time
  run_control run{};          ///< for the whole call; `on_progress` gets the time of the best choices
};

/// The fastest choices found for a level, and what is known of them.
struct level_solution {
  bool found = false;                            ///< there are choices
  std::vector<level_problem::choice> choices{};  ///< a schedule of the level within the budget; empty unless `found`
  double time = std::numeric_limits<double>::infinity();  ///< of the choices, by `simulate_level`
  std::int64_t peak_bytes = 0;                            ///< of the choices, by `simulate_level`
  /// `optimal`: no schedule of the form (`level_model`, sizes in units) is faster by more than `gap`;
  /// `infeasible`: there is no such schedule. Both are the backend's word, a hint.
  mip_status status = mip_status::no_solution;
  double lower_bound = 0;   ///< on the time of schedules of the form; the backend's word, too
  std::uint64_t nodes = 0;  ///< of the backend's search tree
  std::uint64_t work = 0;   ///< that the backend counted
  std::size_t columns = 0;  ///< of the integer program; 0: none was built
  std::size_t rows = 0;     ///< of the integer program
  bool refused = false;     ///< the integer program was not solved, because of `most_columns`
  std::string message{};    ///< how the program ended, or why it was not solved
};

/// Solves H-ILP (`level_model`) with a MIP backend: the fastest choices found for a level within a budget.
///
/// Each solution of the backend is decoded and counts by what `simulate_level` says of it. Work is that of the backend.
/// For a work limit the answer is the same every time. Cancellation: building the model polls at every event, and the
/// backend stops as it promises. Throws `bad_argument` by `require_valid`, and for options that `level_model` refuses
/// or that are NaN or negative.
[[nodiscard]] level_solution hierarchical_ilp(mip_backend_ref backend, const level_problem& level, std::int64_t budget,
                                              const hierarchical_ilp_options& options = {});

}  // namespace remat::detail

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/method/hiremate/impl/hierarchical_ilp.hpp"
#endif
