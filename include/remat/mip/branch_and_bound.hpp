// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstddef>
#include <string_view>

#include "remat/mip/model.hpp"

namespace REMAT_NAMESPACE {

/// Branch and bound, depth first, with a dense dual simplex method for the relaxations: for tests, and for models of
/// some hundred rows. \cite land1960automatic \cite lemke1954dual
///
/// A node branches on the integer column whose value is farthest from a whole number, and follows the nearer side
/// first. A pivot takes O(rows · columns) time, and the tableau as much memory. A model of more than `max_entries`
/// entries is refused (`failed`). Infinite bounds of columns count as ±1e7; if the relaxation's optimum stands on one
/// of these, the model is reported as `unbounded`. Tolerances: 1e-8 for rows and bounds, 1e-6 for whole numbers. Under
/// a work limit the answer is the same every time. Polls every half million operations, about a millisecond.
struct branch_and_bound_backend {
  static constexpr std::string_view name = "branch_and_bound";  ///< the backend's name
  static constexpr std::size_t max_entries = std::size_t{1}
                                             << 26;  ///< the largest product of the rows and columns of a model

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
