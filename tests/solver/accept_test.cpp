// SPDX-License-Identifier: BSL-1.0
#include "remat/solver/accept.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "remat/schedule/simplify.hpp"
#include "support/exhaustive.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;  // NOLINT: a test

schedule listed(const problem& p) {
  std::vector<std::uint32_t> order(p.graph().num_operations);
  for (std::uint32_t o = 0; o < order.size(); ++o) order[o] = o;
  return schedule_computes(p, order);
}

}  // namespace

TEST_CASE("accept takes what is legal, within the budget and better, and nothing else") {
  const problem p = test::random_problem(11, {.operations = 8, .once = 0, .dead = 0});
  solution best;
  const schedule plan = listed(p);
  const check_report r = check(p, plan);
  REQUIRE(r.valid());
  CHECK_FALSE(accept(p.with_budget(r.peak_bytes - 1), best, plan));
  CHECK_FALSE(best.has_schedule());
  CHECK(accept(p.with_budget(r.peak_bytes), best, plan));
  CHECK(best.status == solve_status::feasible);
  CHECK(best.time == r.time);
  CHECK(best.peak_bytes == r.peak_bytes);
  CHECK_FALSE(accept(p, best, plan));  // no better than itself
  solution none;
  CHECK_THROWS_AS(accept(p, none, schedule{{step::free(tensor_id{0})}}), internal_error);
  CHECK_FALSE(none.has_schedule());
}

TEST_CASE("statuses come from proofs alone") {
  std::size_t infeasible = 0, optimal = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const problem free = test::random_problem(seed, {.operations = 6});
    const problem p = free.with_budget(free.graph().baseline_peak * 3 / 4);
    const double least = test::least_time(p);
    const run_control run;
    const run_clock clock(run);
    solution s;
    accept(p, s, listed(free));
    conclude(p, s, clock, stop_reason::none);
    INFO("seed ", seed);
    REQUIRE(s.proven);
    REQUIRE(s.lower_bound <= least);
    if (s.status == solve_status::infeasible) {
      REQUIRE(std::isinf(least));
      CHECK_FALSE(s.message.empty());
    }
    if (s.status == solve_status::optimal) REQUIRE(s.time == least);
    infeasible += s.status == solve_status::infeasible;
    optimal += s.status == solve_status::optimal;
  }
  CHECK(infeasible > 20);
  CHECK(optimal > 10);
}

TEST_CASE("a known bound is taken over, and another budget forgets it") {
  const problem p = test::random_problem(3, {.operations = 8});
  const double bound = p.graph().needed_time + 5;
  const problem known = p.with_budget(p.graph().baseline_peak / 2).with_known_bound(bound);
  solution s;
  CHECK_FALSE(prove(known, s));
  CHECK(s.lower_bound == bound);
  CHECK_FALSE(known.with_budget(10).known_bound().has_value());
  solution none;
  CHECK(prove(known.with_known_bound(std::numeric_limits<double>::infinity()), none));
  CHECK(none.status == solve_status::infeasible);
}

TEST_CASE("what was stopped says how") {
  const problem p = test::random_problem(3, {.operations = 8});
  const run_control run;
  const run_clock clock(run);
  solution a, b, c;
  conclude(p, a, clock, stop_reason::cancelled);
  conclude(p, b, clock, stop_reason::deadline);
  conclude(p, c, clock, stop_reason::none);
  CHECK(a.status == solve_status::cancelled);
  CHECK(b.status == solve_status::timeout);
  CHECK(c.status == solve_status::timeout);
  CHECK_FALSE(c.message.empty());
  CHECK(to_string(solve_status::infeasible) == "infeasible");
}
