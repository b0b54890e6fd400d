// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/checkmate.hpp"
#include "remat/mip/cbc.hpp"

namespace remat {

/// Checkmate's integer program on COIN-OR CBC: see `checkmate_solver` and `cbc_backend`.
inline constexpr checkmate_solver<cbc_backend> checkmate{};

}  // namespace remat
