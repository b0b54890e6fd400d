// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <string>

#include "remat/mip/model.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// Says in the message of `best`, and by the figures `backend_failures` and `backend_failure`, what MIP backends failed
/// at. Nothing if none did.
inline void report_failures(const mip_failures& failures, solution& best) {
  if (failures.count() == 0) return;
  const std::string first = failures.first();
  best.statistics.own.set("backend_failures", failures.count());
  best.statistics.own.set("backend_failure", first);
  best.message += (best.message.empty() ? "" : "; ") + first;
}

}  // namespace REMAT_NAMESPACE::detail
