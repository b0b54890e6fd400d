// SPDX-License-Identifier: BSL-1.0
#include "remat/core/run.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

TEST_CASE("a clock says why to stop: asked to, out of work, out of time, in this order") {
  remat::run_control control;
  remat::run_clock free(control);
  CHECK(free.poll() == remat::stop_reason::none);
  CHECK(free.left() == std::chrono::nanoseconds::max());

  control.time_limit = 1h;
  const remat::run_clock timed(control);
  CHECK_FALSE(timed.should_stop());
  CHECK(timed.left() > 59min);

  std::stop_source source;
  control.stop = source.get_token();
  control.time_limit = 0ns;
  control.work_limit = 3;
  remat::run_clock late(control);
  CHECK(late.poll() == remat::stop_reason::deadline);
  CHECK(late.left() == 0ns);
  late.work(2);
  CHECK(late.poll() == remat::stop_reason::deadline);
  late.work();
  CHECK(late.work_done() == 3);
  CHECK(late.poll() == remat::stop_reason::work);
  source.request_stop();
  CHECK(late.poll() == remat::stop_reason::cancelled);
}

TEST_CASE("a clock that starts earlier has less left") {
  remat::run_control control;
  control.time_limit = 10s;
  const remat::run_clock late(control, "", remat::run_clock::clock::now() - 9s);
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

TEST_CASE("a part has its share of what is left, and its work counts in the whole") {
  remat::run_clock whole({.time_limit = 1h, .work_limit = 1000, .seed = 7, .threads = 3});
  whole.work(200);
  {
    remat::run_clock part = whole.part(0.5);
    CHECK(part.work_left() == 400);
    CHECK(part.left() <= 30min);
    CHECK(part.left() > 29min);
    CHECK(part.control().seed == 7);
    CHECK(part.control().threads == 3);
    remat::run_clock inner = part.part(0.25);
    CHECK(inner.work_left() == 100);
    inner.work(90);
    CHECK(part.work_left() == 310);
    part.work(10);
  }
  CHECK(whole.work_done() == 300);
  CHECK(whole.part(1).work_left() == 700);
  CHECK(remat::run_clock({}).part(0.1).poll() == remat::stop_reason::none);
}

TEST_CASE("law: the work of the parts is the work of the whole, however they nest") {
  std::uint64_t state = 1;
  const auto next = [&state](std::uint64_t n) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (state >> 33U) % n;
  };
  for (int round = 0; round < 200; ++round) {
    remat::run_clock whole({.work_limit = 100'000});
    std::uint64_t counted = 0;
    const std::function<std::uint64_t(remat::run_clock&, int)> run = [&](remat::run_clock& clock, int depth) {
      std::uint64_t mine = next(10);
      clock.work(mine);
      counted += mine;
      for (std::uint64_t k = depth < 4 ? next(4) : 0; k > 0; --k) {
        remat::run_clock part = clock.part(0.3);
        const std::uint64_t of_part = run(part, depth + 1);
        CHECK(part.work_done() == of_part);
        mine += of_part;
      }
      return mine;
    };
    CHECK(run(whole, 0) == counted);
    CHECK(whole.work_done() == counted);
  }
}

TEST_CASE("progress of a part goes through the whole: its name, its stage, its time, and the better of both figures") {
  std::vector<remat::progress> heard;
  remat::run_control control;
  control.time_limit = 7s;
  control.on_progress = [&](const remat::progress& news) { heard.push_back(news); };
  double best = 5;
  const double bound = 2;
  {
    remat::run_clock whole(control, "whole");
    whole.watch(best, bound);
    remat::run_clock part = whole.part(0.5, "part");
    part.control().on_progress({.solver = "inner", .stage = "table", .best_objective = 6, .done = 3, .total = 4});
  }
  {
    remat::run_clock whole(control, "whole");
    whole.watch(best, bound);
    remat::run_clock part = whole.part(0.5);
    part.report({.stage = "table", .best_objective = 4, .lower_bound = 3});
  }
  REQUIRE(heard.size() == 2);
  CHECK(heard[0].solver == "whole");
  CHECK(heard[0].stage == "part");
  CHECK(heard[0].best_objective == 5);
  CHECK(heard[0].lower_bound == 2);
  CHECK(heard[0].done == 3);
  CHECK(heard[0].time_limit == 7s);
  CHECK(heard[1].stage == "table");
  CHECK(heard[1].best_objective == 4);
  CHECK(heard[1].lower_bound == 3);
}

TEST_CASE("a part on another problem reports its stage and work, and the figures of the whole alone") {
  std::vector<remat::progress> heard;
  remat::run_control control;
  control.on_progress = [&](const remat::progress& news) { heard.push_back(news); };
  const double best = 5, bound = 2;
  for (const bool is_watched : {false, true})
    for (const bool is_inner : {false, true}) {
      remat::run_clock whole(control, "whole");
      if (is_watched) whole.watch(best, bound);
      remat::run_clock part = whole.part_on_other_problem(0.5, "part");
      const double other_best = 1, other_bound = 9;
      part.watch(other_best, other_bound);
      remat::run_clock inner = part.part(1);
      (is_inner ? inner : part)
          .control()
          .on_progress({.solver = "inner", .stage = "table", .best_objective = 3, .lower_bound = 8, .done = 6});
    }
  REQUIRE(heard.size() == 4);
  for (std::size_t i = 0; i < heard.size(); ++i) {
    CHECK(heard[i].solver == "whole");
    CHECK(heard[i].stage == "part");
    CHECK(heard[i].done == 6);
    CHECK(heard[i].best_objective == (i < 2 ? remat::progress().best_objective : best));
    CHECK(heard[i].lower_bound == (i < 2 ? 0 : bound));
  }
}

TEST_CASE("limits for a sub-problem report nothing; without a listener nobody hears") {
  remat::run_control control;
  control.on_progress = [](const remat::progress&) { CHECK(false); };
  control.work_limit = 10;
  const remat::run_clock whole(control);
  CHECK(whole.is_heard());
  CHECK_FALSE(whole.limits(0.5).on_progress);
  CHECK(whole.limits(0.5).work_limit == 5);
  remat::run_clock silent({});
  CHECK_FALSE(silent.is_heard());
  CHECK_FALSE(silent.part(1).is_heard());
}

TEST_CASE("the stop rule: within a gap of the bound") {
  CHECK(remat::is_within_gap(1.1, 1.0, 0.1));
  CHECK_FALSE(remat::is_within_gap(1.2, 1.0, 0.1));
  CHECK(remat::is_within_gap(1.0, 1.0, 0));
}
