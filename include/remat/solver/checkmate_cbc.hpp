// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/mip/cbc.hpp"
#include "remat/solver/checkmate.hpp"

namespace remat {

/// Checkmate's integer program on COIN-OR CBC: see `checkmate_solver` and `cbc_backend`.
inline constexpr checkmate_solver<cbc_backend> checkmate{};

}  // namespace remat
