// SPDX-License-Identifier: BSL-1.0
#include "remat/core/run.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <stop_token>
#include <thread>

using namespace std::chrono_literals;

TEST_CASE("a clock says why to stop: asked to, out of work, out of time, in this order") {
  remat::run_control control;
  remat::run_clock free(control);
  CHECK(free.poll() == remat::stop_reason::none);
  CHECK(free.left() == std::chrono::nanoseconds::max());

  control.time_limit = 1h;
  remat::run_clock timed(control);
  CHECK_FALSE(timed.should_stop());
  CHECK(timed.left() > 59min);
  control.time_limit = 0ns;
  CHECK(timed.poll() == remat::stop_reason::deadline);
  CHECK(timed.left() == 0ns);

  control.work_limit = 3;
  timed.work(2);
  CHECK(timed.poll() == remat::stop_reason::deadline);
  timed.work();
  CHECK(timed.work_done() == 3);
  CHECK(timed.poll() == remat::stop_reason::work);

  std::stop_source source;
  control.stop = source.get_token();
  CHECK(timed.poll() == remat::stop_reason::work);
  source.request_stop();
  CHECK(timed.poll() == remat::stop_reason::cancelled);
}

TEST_CASE("a clock that starts earlier has less left") {
  remat::run_control control;
  control.time_limit = 10s;
  const remat::run_clock late(control, remat::run_clock::clock::now() - 9s);
  CHECK(late.left() < 1100ms);
  CHECK(late.seconds() >= 9);
}

TEST_CASE("progress is passed on at once, then not more often than every 50 ms") {
  int calls = 0;
  remat::run_control control;
  control.time_limit = 1h;
  control.on_progress = [&](const remat::progress& now) {
    ++calls;
    CHECK(now.time_limit == 1h);
    CHECK(now.elapsed >= 0ns);
    CHECK(now.solver == "x");
  };
  remat::run_clock clock(control);
  for (int i = 0; i < 1000; ++i) clock.report({.solver = "x"});
  CHECK(calls >= 1);
  CHECK(calls <= 3);
  std::this_thread::sleep_for(60ms);
  const int before = calls;
  clock.report({.solver = "x"});
  CHECK(calls == before + 1);
}

TEST_CASE("a value is optimal where it meets its bound up to rounding, and not beyond") {
  CHECK(remat::is_optimal(1.0, 1.0));
  CHECK(remat::is_optimal(0.1 + 0.2, 0.3));
  CHECK(remat::is_optimal(0.0, 0.0));
  CHECK_FALSE(remat::is_optimal(1 + 1e-9, 1.0));
  CHECK_FALSE(remat::is_optimal(1e-300, 0.0));
  CHECK(remat::with_rounding(2.0) > 2.0);
}
