// SPDX-License-Identifier: BSL-1.0
#pragma once

#include "remat/method/hiremate.hpp"
#include "remat/mip/cbc.hpp"

namespace remat {

/// HiRemate on CBC. \cite forrest2005cbc
inline constexpr hiremate_solver<cbc_backend> hiremate{};

}  // namespace remat
