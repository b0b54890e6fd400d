// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/mip/cbc.hpp"
#include "remat/solver/hiremate.hpp"

namespace remat {

/// HiRemate on CBC. \cite forrest2005cbc
inline constexpr hiremate_solver<cbc_backend> hiremate{};

}  // namespace remat
