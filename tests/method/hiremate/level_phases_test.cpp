// SPDX-License-Identifier: BSL-1.0
#include "remat/method/hiremate/impl/level_phases.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>

#include "remat/method/hiremate/impl/level_problem.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test
using detail::level_phases;

constexpr double infinite = std::numeric_limits<double>::infinity();

/// Two forward runs, the first with a saving variant, and their backward runs.
level_problem two_layers() {
  level_problem p;
  p.bytes = {4, 9, 2, 5, 1};  // 0: activation, 1 or 2: phantom of run 0, 3: phantom of run 1, 4: gradient
  p.runs.resize(4);
  p.runs[0] = {true, {{1, 13, {}, {0, 1}, {}}, {2, 7, {}, {0, 2}, {}}}};
  p.runs[1] = {true, {{1, 5, {0}, {3}, {}}}};
  p.runs[2] = {false, {{1, 1, {3}, {4}, {}}}};
  p.runs[3] = {false, {{1, 0, {1, 4}, {}, {}}, {3, 0, {2, 4}, {}, {}}}};
  return p;
}

}  // namespace

TEST_CASE("variants: those that do not fit, or take too long, are not chosen") {
  const level_problem p = two_layers();
  const level_phases all(p, 100, infinite, 0);
  CHECK_FALSE(all.is_impossible());
  CHECK(all.least_time() == 4);
  CHECK(all.may_run_first(0, 0));
  CHECK(all.may_run_first(0, 1));
  CHECK(all.is_common(0));
  CHECK_FALSE(all.is_common(1));
  const level_phases tight(p, 12, infinite, 0);
  CHECK_FALSE(tight.may_run_first(0, 0));
  CHECK_FALSE(tight.may_run_first(3, 0));  // nothing writes what it reads
  CHECK(tight.least_time() == 7);
  CHECK(tight.is_common(2));  // all variants that are left write it
  const level_phases fast(p, 100, 4, 0);
  CHECK_FALSE(fast.may_run_first(3, 1));
  CHECK(level_phases(p, 3, infinite, 0).is_impossible());
  CHECK(level_phases(p, -1, infinite, 0).is_impossible());
}

TEST_CASE("phases: where everything fits, nothing runs again") {
  const level_problem p = two_layers();
  const auto never = [] { return false; };
  level_phases wide(p, 100, infinite, 0);
  wide.find_first(size_units(100, 1, 1000), never);
  CHECK(wide.first() == 4);
  level_phases tight(p, 16, infinite, 0);
  tight.find_first(size_units(16, 1, 1000), never);
  CHECK(tight.first() < 4);
  CHECK(tight.may_run_again(3, 0, 0));
  CHECK_FALSE(tight.may_run_again(0, 0, 0));
  level_phases late(p, 16, infinite, 3);
  late.find_first(size_units(16, 1, 1000), never);
  CHECK_FALSE(late.may_run_again(2, 0, 0));
  CHECK(tight.must_stay_from(4, 3));
  CHECK_FALSE(tight.must_stay_after(4, 3, 3));
}
