// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/checkmate.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/mip/cbc.hpp"

/// \file
/// The solvers that need a MIP backend, on COIN-OR CBC (`cbc_backend`). \cite forrest2005cbc

namespace REMAT_NAMESPACE {

/// Checkmate's integer program on CBC: see `checkmate_solver`.
inline constexpr checkmate_solver<cbc_backend> checkmate{};
/// HiRemate on CBC: see `hiremate_solver`.
inline constexpr hiremate_solver<cbc_backend> hiremate{};

}  // namespace REMAT_NAMESPACE
