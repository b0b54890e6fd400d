// SPDX-License-Identifier: BSL-1.0
#include "remat/core/detail/spent_share.hpp"

#include <doctest/doctest.h>

#include <chrono>

#include "remat/core/run.hpp"

using namespace remat;
using namespace remat::detail;

TEST_CASE("the share that is spent is that of the limit which ends first") {
  run_clock unlimited{run_control{}};
  unlimited.work(5);
  CHECK(spent_share(unlimited, 0.25) == 0.25);

  run_control limits;
  limits.work_limit = 8;
  run_clock counted(limits);
  CHECK(spent_share(counted, 0.25) == 0);
  counted.work(2);
  CHECK(spent_share(counted, 0.9) == 0.25);
  counted.work(6);
  CHECK(spent_share(counted, 0.9) == 1);

  limits.time_limit = std::chrono::hours(1'000'000);
  run_clock both(limits);
  both.work(4);
  CHECK(spent_share(both, 0.9) == 0.5);

  limits.time_limit = std::chrono::nanoseconds(0);
  run_clock late(limits, {}, run_clock::clock::now() - std::chrono::seconds(1));
  CHECK(spent_share(late, 0.9) >= 1);
}
