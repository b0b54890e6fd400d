// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "remat/mip/model.hpp"

namespace REMAT_NAMESPACE {

/// COIN-OR CBC in a child process, so that it can be stopped. \cite forrest2005cbc
///
/// CBC overruns its own time limit by any amount, for instance within one large linear program. So `solve` forks. The
/// child runs CBC and sends solutions and bounds through a pipe. The parent polls its clock and its stop token at least
/// every 20 ms, kills the child when a limit is met, and returns what has come so far. So the call returns within the
/// time limit + 1 s whatever CBC does, a crash included; likewise after a stop request. Either costs some milliseconds
/// of processor time.
///
/// CBC runs single-threaded, and takes no locks of the parent's. If the child hangs all the same, the time limit ends
/// it; without a time limit, `first_sign` does. `remat/mip/detail/child_process.hpp` says what the child shares with
/// its parent.
///
/// CBC's answers are hints. Integer columns are rounded to the nearest whole number, and values are taken if they then
/// meet the model within 1e-5. `optimal` and `infeasible` are CBC's word, and CBC has been wrong.
///
/// `run.threads` is not used. Under a work limit and without a time limit, the answer is the same every time: the limit
/// bounds the nodes, and the iterations of the simplex method. A search that was stopped from outside does not say its
/// work.
struct cbc_backend {
  static constexpr std::string_view name = "cbc";       ///< the backend's name
  std::uint64_t memory_limit = std::uint64_t{8} << 30;  ///< bytes that the child may allocate; 0: no limit
  /// The child is killed if it has sent nothing after this time, not even the bound of the first linear program.
  std::chrono::nanoseconds first_sign = std::chrono::minutes(10);
  /// CBC's integer preprocessing. CBC 2.10.8 with it calls solutions optimal that are not: `cbc_test.cpp` has a model
  /// of thirteen columns.
  bool preprocess = false;

  /// Minimises the model in a child process. Throws `bad_argument` for a `relative_gap` that is NaN or negative, and
  /// what the callbacks throw. The result is `failed` if no process can be started, or the child breaks down without
  /// values.
  [[nodiscard]] mip_result solve(const mip_model& model, const mip_options& options = {}) const;
};
/// The backend with its default settings, as an object.
inline constexpr cbc_backend cbc{};

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/mip/impl/cbc.hpp"
#endif
