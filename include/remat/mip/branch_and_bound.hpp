// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string_view>

#include "remat/mip/model.hpp"

namespace REMAT_NAMESPACE {

/// Branch and bound, depth first, with a sparse dual simplex method for the relaxations: for tests, and for models of
/// some thousand rows. \cite land1960automatic \cite lemke1954dual
///
/// A node branches on the integer column whose value is farthest from a whole number, and follows the nearer side
/// first. Its relaxation starts from the last basis. A node is closed only if a bound that rounding cannot raise proves
/// that it has no better solution \cite neumaier2004safe, so `infeasible` and `optimal` are proven: the former for
/// values that break rows by 1e-7 of the largest coefficient, too, the latter within 1e-6 of the objective. Infinite
/// bounds of columns count as ±1e7; if the relaxation's optimum stands on one of these, the model is reported as
/// `unbounded`. Under a work limit the answer is the same every time. Polls every 20 iterations of the simplex method.
struct branch_and_bound_backend {
  static constexpr std::string_view name = "branch_and_bound";  ///< the backend's name

  /// Minimises the model. Throws `bad_argument` for a `relative_gap` that is NaN or negative, and what the callbacks
  /// throw.
  [[nodiscard]] mip_result solve(const mip_model& model, const mip_options& options = {}) const;
};
/// The backend as an object.
inline constexpr branch_and_bound_backend branch_and_bound{};

}  // namespace REMAT_NAMESPACE

#ifndef REMAT_SEPARATE_COMPILATION
#include "remat/mip/impl/branch_and_bound.hpp"
#endif
