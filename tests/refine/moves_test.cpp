// SPDX-License-Identifier: BSL-1.0
#include "remat/refine/detail/moves.hpp"

#include <doctest/doctest.h>

#include <cstdint>

#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/random_graph.hpp"
#include "support/schedules.hpp"

namespace {
using namespace remat;  // NOLINT: a test
}

TEST_CASE("moves keep a schedule legal and within the budget, and without temperature never slower") {
  std::size_t faster = 0, tried = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const problem free = test::random_problem(seed, {.operations = 8 + static_cast<std::uint32_t>(seed % 12)});
    const test::random_schedule made(free, seed);
    const check_report start = check(free, made.plan);
    if (!start.valid()) continue;
    const problem p = free.with_budget(check(free, simplify(free, made.plan)).peak_bytes);
    detail::timeline plan(p);
    plan.load(made.plan);
    detail::refine_moves moves(plan, seed);
    double last = plan.time();
    for (int i = 0; i < 300; ++i) {
      moves.temperature = i < 100 ? 2 : 0;
      moves.random_move();
      REQUIRE(plan.excess() == 0);
      if (i >= 100) CHECK(plan.time() <= last);
      last = plan.time();
    }
    const check_report r = check(p, schedule_computes(p, plan.computes()));
    INFO("seed ", seed, ": ", r.message());
    REQUIRE(r.valid());
    CHECK(r.time <= plan.time());
    ++tried;
    faster += r.time < start.time;
  }
  CHECK(tried > 200);
  CHECK(faster > 20);
}
