// SPDX-License-Identifier: BSL-1.0
#pragma once

#include <doctest/doctest.h>

#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/solver/solution.hpp"
#include "support/data.hpp"

namespace remat::test {

/// What holds of every solver's answer, checked from the outside.
inline void check_answer(const problem& p, const solution& s) {
  CHECK(s.lower_bound >= p.graph().needed_time);
  switch (s.status) {
    case solve_status::optimal:
    case solve_status::feasible: {
      REQUIRE(s.has_schedule());
      const check_report report = check(p, *s.plan);
      CHECK(report.valid());
      CHECK(report.peak_bytes == s.peak_bytes);
      CHECK(report.peak_bytes <= p.budget());
      CHECK(report.time == s.time);
      CHECK(report.time >= p.graph().needed_time * (1 - 1e-12));
      break;
    }
    default:
      CHECK_FALSE(s.has_schedule());
  }
}

}  // namespace remat::test
