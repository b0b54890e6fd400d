// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <string>

#include "remat/mip/model.hpp"
#include "remat/solver/solution.hpp"

namespace REMAT_NAMESPACE::detail {

/// Says in the message of `best`, and by the figures `CODE_failures` and `CODE_failure`, what foreign code failed at.
/// Nothing if it did not.
inline void report_failures(const std::string& code, std::uint64_t count, const std::string& first, solution& best) {
  if (count == 0) return;
  best.statistics.own.set(code + "_failures", count);
  best.statistics.own.set(code + "_failure", first);
  best.message += (best.message.empty() ? "" : "; ") + first;
}

/// Says in the message of `best`, and by the figures `backend_failures` and `backend_failure`, what MIP backends failed
/// at. Nothing if none did.
inline void report_failures(const mip_failures& failures, solution& best) {
  report_failures("backend", failures.count(), failures.first(), best);
}

}  // namespace REMAT_NAMESPACE::detail
