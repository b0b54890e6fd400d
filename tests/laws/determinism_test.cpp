// SPDX-License-Identifier: BSL-1.0
// Laws: a seed and a work limit decide the schedule, whatever the threads; a work limit bounds the work; progress comes
// on the caller's thread alone, and is true.
#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "laws/solvers.hpp"
#include "remat/core/run.hpp"
#include "support/data.hpp"
#include "support/deep_stack.hpp"
#include "support/long_run.hpp"

using namespace remat;
using namespace remat::test;

TEST_CASE("the same schedule with one thread and with two, and again") {
  const std::vector<law_solver> solvers = all_solvers();
  for (const char* name : {"toy-skip-3", "fno1d-b32-8192", "unet5-b16-256", "rk/gpt2-like-2l"})
    for (const double part : {0.7, 0.45}) {
      const problem p = within(bundled_problem(name), part);
      for (std::size_t number = 0; number < solvers.size(); ++number) {
        if (!test::long_run() && (number % 2 == 0) != (part > 0.5)) continue;  // each solver at one of the budgets
        const law_solver& solver = solvers[number];
        CAPTURE(name);
        CAPTURE(part);
        CAPTURE(solver.name);
        run_control run;
        run.work_limit = 6400;
        run.seed = 3;
        const solution first = solver.solve(p, run);
        for (const unsigned threads : {1U, 2U}) {
          run.threads = threads;
          const solution again = solver.solve(p, run);
          CHECK(again.status == first.status);
          CHECK(again.lower_bound == first.lower_bound);
          REQUIRE(again.has_schedule() == first.has_schedule());
          if (first.has_schedule()) CHECK(*again.plan == *first.plan);
          CHECK(again.statistics.work == first.statistics.work);
        }
      }
    }
}

TEST_CASE("a work limit bounds the work that is counted") {
  const problem p = within(deep_stack(20, 1), 0.4);
  for (const law_solver& solver : all_solvers())
    for (const std::uint64_t limit : {16U, 1600U, 32'000U}) {
      CAPTURE(solver.name);
      CAPTURE(limit);
      run_control run;
      run.work_limit = limit;
      const solution s = solver.solve(p, run);
      // A stride between two polls, or a schedule that is expanded, may come on top.
      CHECK(s.statistics.work <= limit + limit / 2 + 5000);
    }
}

TEST_CASE("progress comes on the caller's thread and says nothing that is not so") {
  for (const unsigned threads : {1U, 2U}) {
    const problem p = within(bundled_problem("unet5-b16-256"), 0.45);
    for (const law_solver& solver : all_solvers()) {
      CAPTURE(solver.name);
      CAPTURE(threads);
      const auto caller = std::this_thread::get_id();
      struct report {
        double best, bound;
        std::string solver;
        bool on_caller;
      };
      std::vector<report> reports;
      run_control run;
      run.threads = threads;
      run.time_limit = std::chrono::milliseconds(300);
      run.on_progress = [&](const progress& news) {
        reports.push_back(
            {news.best_objective, news.lower_bound, std::string(news.solver), std::this_thread::get_id() == caller});
      };
      const solution s = solver.solve(p, run);
      for (const report& r : reports) {
        CHECK(r.on_caller);
        CHECK(r.solver == solver.reports);
        // A schedule that was reported is there in the end, or a better one.
        if (s.has_schedule()) CHECK(with_rounding(r.best) >= s.time);
        if (s.has_schedule()) CHECK(r.bound <= with_rounding(s.time));
      }
    }
  }
}

TEST_CASE("exceptions from callbacks propagate") {
  struct leave {};
  const problem p = within(bundled_problem("unet5-b16-256"), 0.45);
  for (const law_solver& solver : all_solvers()) {
    CAPTURE(solver.name);
    bool called = false;
    run_control run;
    run.time_limit = std::chrono::milliseconds(500);
    run.on_progress = [&](const progress&) {
      called = true;
      throw leave{};
    };
    bool thrown = false;
    try {
      (void)solver.solve(p, run);
    } catch (const leave&) {
      thrown = true;
    }
    CHECK(thrown == called);
  }
}
