// SPDX-License-Identifier: BSL-1.0
#include "remat/refine/detail/retention.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <stop_token>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/refine/detail/moves.hpp"
#include "remat/refine/detail/timeline.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/random_graph.hpp"
#include "support/schedules.hpp"

using namespace remat;
using namespace remat::detail;

TEST_CASE("the peak is the checker's, and what goes leaves a legal schedule within the budget") {
  std::size_t removed = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const problem free = test::random_problem(seed, {.operations = 5 + static_cast<std::uint32_t>(seed % 14)});
    const test::random_schedule made(free, seed);
    if (!check(free, made.plan).valid()) continue;
    const schedule plan = simplify(free, made.plan);
    const std::int64_t peak = check(free, plan).peak_bytes;
    for (const std::int64_t budget : {peak, peak + 3, problem::unlimited}) {
      const problem p = free.with_budget(budget);
      retention line(p, plan);
      REQUIRE(line.peak() == peak);
      if (line.size() == 0) continue;
      std::size_t left = line.size();
      random_source random(seed);
      for (int round = 0; round < 20; ++round) {
        const std::uint32_t x = random.below(static_cast<std::uint32_t>(line.size()));
        if (!line.removable(x)) continue;
        const std::vector<std::uint32_t> before = line.computes();
        const std::int64_t was = line.peak();
        const bool went = line.try_remove(x);
        const std::vector<std::uint32_t> after = line.computes();
        const check_report now = check(p, schedule_computes(p, after));
        REQUIRE_MESSAGE(now.valid(), now.message());
        if (went) {
          ++removed;
          REQUIRE(after.size() < left);
          left = after.size();
          // Nothing that is left is there in vain, so the schedule has the same computes, and the same peak.
          if (now.computes == after.size()) REQUIRE(now.peak_bytes == line.peak());
        } else {
          ++refused;
          REQUIRE(after == before);
          REQUIRE(line.peak() == was);
        }
      }
    }
  }
  CHECK(removed > 1000);
  CHECK(refused > 300);
}

TEST_CASE("it does what a timeline does, run by run") {
  std::size_t compared = 0;
  for (std::uint64_t seed = 0; seed < 800; ++seed) {
    const problem free = test::random_problem(seed, {.operations = 6 + static_cast<std::uint32_t>(seed % 14)});
    const test::random_schedule made(free, seed);
    if (!check(free, made.plan).valid()) continue;
    const schedule plan = simplify(free, made.plan);
    const problem p = free.with_budget(check(free, plan).peak_bytes + static_cast<std::int64_t>(seed % 5));
    retention line(p, plan);
    timeline reference(p);
    reference.load(plan);
    refine_moves moves(reference, 0);
    moves.max_repairs = 0;
    for (std::uint32_t x = 0; x < line.size(); ++x) {
      const timeline::node node = x + 2;  // freshly loaded nodes are numbered by their places
      REQUIRE(line.removable(x) == (reference.alive(node) && reference.removable(node)));
      if (!line.removable(x)) continue;
      REQUIRE(line.try_remove(x) == moves.retain(node));
      REQUIRE(line.computes() == reference.computes());
      ++compared;
    }
  }
  CHECK(compared > 300);
}

TEST_CASE("never slower, never over the budget, and with memory for all nothing is computed twice") {
  std::size_t faster = 0, made_room = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const problem free =
        test::random_problem(seed, {.operations = 6 + static_cast<std::uint32_t>(seed % 14), .once = 0});
    const test::random_schedule made(free, seed);
    if (!check(free, made.plan).valid()) continue;
    const schedule plan = simplify(free, made.plan);
    const check_report before = check(free, plan);
    const problem p = free.with_budget(before.peak_bytes + static_cast<std::int64_t>(seed % 4));
    const run_control control;
    run_clock clock(control);
    const check_report once = check(p, retain(p, plan, clock, 1));
    const check_report after = check(p, retain(p, plan, clock));
    REQUIRE_MESSAGE(once.valid(), once.message());
    REQUIRE_MESSAGE(after.valid(), after.message());
    REQUIRE(once.time <= before.time);
    REQUIRE(after.time <= once.time);
    faster += once.time < before.time;
    made_room += after.time < once.time;
    REQUIRE(check(p, retain(p, plan, clock, 0)).time == before.time);
  }
  CHECK(faster > 200);
  CHECK(made_room > 5);
}

TEST_CASE("the run that saves most for what it takes goes first") {
  // y and z are computed twice; only one of them can be held. z takes as much time and half of the bytes.
  training_graph g;
  const tensor_id x = g.add_tensor({.name = "x", .bytes = 1});
  const tensor_id y = g.add_tensor({.name = "y", .bytes = 4});
  const tensor_id z = g.add_tensor({.name = "z", .bytes = 2});
  const tensor_id w = g.add_tensor({.name = "w", .bytes = 1});
  const tensor_id end = g.add_tensor({.name = "end", .bytes = 1});
  g.add_operation({.name = "x", .outputs = {x}, .seconds = 1});
  g.add_operation({.name = "y", .inputs = {x}, .outputs = {y}, .seconds = 3});
  g.add_operation({.name = "z", .inputs = {x}, .outputs = {z}, .seconds = 3});
  g.add_operation({.name = "w", .inputs = {x}, .outputs = {w}, .seconds = 1, .workspace = 5});
  g.add_operation({.name = "end", .inputs = {x, y, z, w}, .outputs = {end}, .seconds = 1});
  g.add_final_output(end);
  const problem p(g, measured_cost{}, 9);
  const schedule start = schedule_computes(p, std::vector<std::uint32_t>{0, 1, 2, 3, 1, 2, 4});
  // As it stands, the first runs of y and z are in vain: the schedule is the listed order with both made late.
  const run_control control;
  run_clock clock(control);
  const schedule kept = retain(p, start, clock);
  CHECK(check(p, kept).valid());
  CHECK(check(p, kept).time == 9);
}

TEST_CASE("a stop ends it with what it has") {
  const problem p = test::random_problem(5, {.operations = 20});
  const test::random_schedule made(p, 5);
  REQUIRE(check(p, made.plan).valid());
  std::stop_source source;
  source.request_stop();
  run_control control;
  control.stop = source.get_token();
  run_clock clock(control);
  const schedule plan = simplify(p, made.plan);
  CHECK(retain(p, plan, clock) == plan);
}
