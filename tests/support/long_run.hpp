// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <cstdint>
#include <cstdlib>

namespace remat::test {

/// True if REMAT_LONG is set: a run by hand, which takes every case and may take hours.
[[nodiscard]] inline bool long_run() { return std::getenv("REMAT_LONG") != nullptr; }

/// The number of cases, or a limit on the work of one: `few` by default, `many` in a long run.
[[nodiscard]] inline std::uint64_t num_cases(std::uint64_t few, std::uint64_t many) { return long_run() ? many : few; }

}  // namespace remat::test
