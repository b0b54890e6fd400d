// SPDX-License-Identifier: BSL-1.0
#include "remat/portfolio/detail/part.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <stop_token>

using namespace remat;
using namespace remat::detail;

TEST_CASE("a slice that has used most of its limits may have been cut off") {
  run_clock free({});
  free.work(1'000'000);
  CHECK(!may_be_cut_off(free));

  run_clock counted({.work_limit = 100});
  counted.work(80);
  CHECK(!may_be_cut_off(counted));
  counted.work(1);
  CHECK(may_be_cut_off(counted));

  run_control spent;
  spent.time_limit = std::chrono::nanoseconds(0);
  CHECK(may_be_cut_off(run_clock(spent)));
  run_control long_one;
  long_one.time_limit = std::chrono::hours(1);
  CHECK(!may_be_cut_off(run_clock(long_one)));

  std::stop_source source;
  run_control stopped;
  stopped.stop = source.get_token();
  run_clock clock(stopped);
  CHECK(!may_be_cut_off(clock));
  source.request_stop();
  CHECK(may_be_cut_off(clock));
}
