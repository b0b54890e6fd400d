// SPDX-License-Identifier: BSL-1.0
#include "remat/portfolio/detail/pool.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "remat/bound/turnaround.hpp"
#include "remat/core/error.hpp"
#include "remat/method/evict.hpp"
#include "remat/method/no_remat.hpp"
#include "support/data.hpp"

using namespace remat;
using namespace remat::detail;

namespace {

/// Schedules of different times within one budget: those of evict for smaller budgets.
std::vector<schedule> several_schedules(const problem& p) {
  std::vector<schedule> all;
  for (const double part : {1.0, 0.95, 0.9, 0.85})
    if (const solution s = evict(p.with_budget(static_cast<std::int64_t>(part * static_cast<double>(p.budget()))));
        s.plan)
      all.push_back(*s.plan);
  return all;
}

}  // namespace

TEST_CASE("the best schedule is the fastest that was put in, with what the checker says of it") {
  const problem p = test::within(test::bundled_problem("rk/fno1d"), 0.6);
  pool known(p);
  double least = std::numeric_limits<double>::infinity();
  const std::vector<schedule> all = several_schedules(p);
  REQUIRE(all.size() > 2);
  for (const schedule& plan : all) {
    const check_report report = check(p, plan);
    const bool is_faster = report.time < least;
    CHECK(known.put(plan, "a") == is_faster);
    least = std::min(least, report.time);
    CHECK(known.best().time == least);
  }
  CHECK(known.best().by == "a");
  const check_report report = check(p, *known.best().plan);
  CHECK(report.time == known.best().time);
  CHECK(report.peak_bytes == known.best().peak_bytes);
  CHECK(known.view().starts.size() == all.size());
}

TEST_CASE("a schedule over the budget is left out, and one that is not legal is a defect") {
  const problem whole = test::bundled_problem("rk/fno1d");
  const problem p = test::within(whole, 0.6);
  pool known(p);
  const schedule too_large = no_remat(whole.with_budget(problem::unlimited)).plan.value();
  CHECK(!known.put(too_large, "a"));
  CHECK(!known.best().plan);
  CHECK(known.view().starts.empty());
  CHECK_THROWS_AS(known.put(schedule{{step::free(tensor_id{0})}}, "a"), internal_error);
  CHECK(known.view().starts.empty());
}

TEST_CASE("a bound only rises, and the problem knows it once there is a proof of its own") {
  const problem p = test::within(test::bundled_problem("rk/fno1d"), 0.6);
  pool known(p);
  const double needed = p.graph().needed_time;
  known.put_bound(0.5 * needed);
  CHECK(known.best().lower_bound == 0.5 * needed);
  CHECK(!known.instance().known_bound());
  CHECK(!known.prove());
  const double proven = turnaround_bound(p).lower_bound;
  CHECK(known.best().lower_bound == proven);
  CHECK(known.instance().known_bound() == proven);
  known.put_bound(needed / 3);
  CHECK(known.best().lower_bound == proven);
  solution higher;
  higher.lower_bound = 1.01 * proven;
  known.put(higher, "a");
  CHECK(known.best().lower_bound == 1.01 * proven);
  CHECK(known.instance().known_bound() == 1.01 * proven);
}

TEST_CASE("what a part or a bound proves to be infeasible settles the pool") {
  const problem p = test::bundled_problem("rk/fno1d").with_budget(1);
  pool by_moment(p);
  CHECK(by_moment.put_moment(turnaround_bound(p)));
  CHECK(by_moment.best().status == solve_status::infeasible);
  CHECK(by_moment.best().obstacle.has_value());
  CHECK(by_moment.view().is_settled(0));

  pool by_part(p);
  CHECK(!by_part.view().is_settled(0));
  solution proof;
  proof.status = solve_status::infeasible;
  proof.message = "why";
  by_part.put(proof, "a");
  CHECK(by_part.view().is_settled(0));
  CHECK(by_part.best().message == "why");
}

TEST_CASE("a part that is told what a pool knows keeps it, whatever comes later") {
  const problem p = test::within(test::bundled_problem("rk/fno1d"), 0.6);
  pool known(p);
  const std::vector<schedule> all = several_schedules(p);
  known.put(all.back(), "a", "a");
  const pool_view before = known.view();
  known.put(all.front(), "b", "b");
  known.put_bound(1);
  CHECK(*before.best.plan == all.back());
  CHECK(before.starts.size() == 1);
  CHECK(before.best.lower_bound == 0);
  CHECK(std::isfinite(before.open_gap()));
  CHECK(known.view().open_gap() < before.open_gap());
  CHECK(!std::isfinite(pool(p).view().open_gap()));
}

TEST_CASE("several threads put schedules and bounds in") {
  const problem p = test::within(test::bundled_problem("rk/fno1d"), 0.6);
  pool known(p);
  const std::vector<schedule> all = several_schedules(p);
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (std::size_t k = 0; k < 20; ++k) {
        known.put(all[(i + k) % all.size()], "a", "a");
        known.put_bound(1e-9 * static_cast<double>(i * 20 + k));
        const pool_view now = known.view();
        if (now.best.plan) known.read([&](const pool_view& later) { CHECK(later.best.time <= now.best.time); });
      }
    });
  threads.clear();
  double least = std::numeric_limits<double>::infinity();
  for (const schedule& plan : all) least = std::min(least, check(p, plan).time);
  CHECK(known.best().time == least);
  CHECK(known.best().lower_bound == 1e-9 * 79);
  CHECK(known.view().origins.size() == 1);
}

TEST_CASE("schedules to start from stand in the order of their times, each time once, a dozen at most") {
  const problem p = test::bundled_problem("toy-skip-3");
  const schedule slow{{step::compute(op_id{1})}};
  pool_view known(p);
  for (const double time : {5.0, 3.0, 9.0, 3.0, 4.0}) known.add_start(slow, time, {});
  CHECK(known.starts.size() == 4);
  schedule fastest{{step::compute(op_id{0})}};
  known.add_start(fastest, 1.0, {});
  CHECK(*known.starts.front() == fastest);
  for (int i = 0; i < 40; ++i) known.add_start(slow, 2 + 0.01 * i, {});
  CHECK(known.starts.size() == 12);
  CHECK(*known.starts.front() == fastest);
}

TEST_CASE("what different parts have found are different starts, each part's fastest") {
  const problem p = test::bundled_problem("toy-skip-3");
  pool_view known(p);
  const auto plan = [](std::uint32_t o) { return schedule{{step::compute(op_id{o})}}; };
  known.add_start(plan(0), 5.0, {});
  known.add_start(plan(1), 3.0, "a");
  known.add_start(plan(2), 2.0, "a");
  known.add_start(plan(3), 2.5, "a");
  known.add_start(plan(4), 4.0, "b");
  known.add_start(plan(2), 2.0, "c");
  REQUIRE(known.origins.size() == 4);
  for (std::size_t i = 1; i < known.origins.size(); ++i) CHECK(known.origins[i - 1].time <= known.origins[i].time);
  CHECK(known.different_starts(3) == std::vector<schedule>{plan(2), plan(4), plan(0)});
  CHECK(known.different_starts(9) == std::vector<schedule>{plan(2), plan(4), plan(0), plan(3), plan(1)});
  CHECK(known.different_starts(1) == std::vector<schedule>{plan(2)});
  CHECK(pool_view(p).different_starts(4).empty());
}
