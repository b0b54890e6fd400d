// SPDX-License-Identifier: BSL-1.0
#include "remat/method/checkmate/impl/rerun_limits.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <stop_token>

#include "remat/bound/least_memory.hpp"
#include "remat/method/checkmate/impl/checkmate_model.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "support/random_graph.hpp"
#include "support/spare_memory.hpp"

using namespace remat;
using namespace remat::detail;

TEST_CASE("limits of runs again: the optimum of the program stays, decisions go") {
  std::size_t looked = 0, fewer = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const problem free = test::random_problem(seed + 66000, {.operations = 8, .once = 0, .backward = 100});
    const problem p = test::with_spare_memory(free, 1, 2);
    const checkmate_model whole(p);
    const mip_result best = branch_and_bound.solve(whole.model(), {.max_nodes = 500});
    if (best.status != mip_status::optimal) continue;
    ++looked;
    const double time = whole.time(best.objective);
    const rerun_limits limits(p, time);
    CHECK(p.graph().needed_time + limits.recomputation() <= time * (1 + 1e-9));
    const auto rule = [&](op_id a, op_id o) { return limits.allows(a, o) ? rerun::free : rerun::never; };
    const checkmate_model part(p, {.at_most = time, .rule = rule});
    const mip_result r = branch_and_bound.solve(part.model(), {.max_nodes = 500});
    INFO("seed ", seed);
    REQUIRE(r.status == mip_status::optimal);
    REQUIRE(part.time(r.objective) == doctest::Approx(time).epsilon(1e-7));
    fewer += part.decisions() < checkmate_model(p, {.at_most = time}).decisions();
  }
  MESSAGE(looked, " programs, ", fewer, " with fewer decisions");
  CHECK(looked > 50);
  CHECK(fewer > 5);
}

TEST_CASE("its flows are counted, and a limit ends it: then it forbids less") {
  std::size_t cut_short = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const problem free = test::random_problem(seed + 66000, {.operations = 8, .once = 0, .backward = 100});
    const problem p = test::with_spare_memory(free, 1, 2);
    const double time = 1.2 * p.graph().needed_time;
    const rerun_limits whole(p, time);
    CHECK(whole.is_complete());
    if (whole.work() < 2) continue;
    ++cut_short;
    run_control half;
    half.work_limit = whole.work() / 2;
    const rerun_limits part(p, time, half);
    CHECK_FALSE(part.is_complete());
    CHECK(part.work() >= half.work_limit);
    CHECK(part.work() < half.work_limit + work_of::flow);
    for (std::uint32_t a = 0; a < 8; ++a)
      for (std::uint32_t o = 0; o < 8; ++o)
        if (whole.allows(static_cast<op_id>(a), static_cast<op_id>(o)))
          CHECK(part.allows(static_cast<op_id>(a), static_cast<op_id>(o)));
  }
  CHECK(cut_short > 3);
}

TEST_CASE("with time enough, nothing is forbidden without a budget, for an infinite time, or after a stop") {
  const problem free = test::random_problem(66003, {.operations = 8, .once = 0, .backward = 100});
  const problem tight = free.with_budget(largest_working_set(free).bytes);
  std::stop_source source;
  source.request_stop();
  run_control stopped;
  stopped.stop = source.get_token();
  const double slow = 3 * free.graph().needed_time;
  for (const rerun_limits& limits :
       {rerun_limits(free, slow), rerun_limits(tight, std::numeric_limits<double>::infinity()),
        rerun_limits(tight, slow, stopped)}) {
    CHECK(limits.recomputation() == 0);
    for (std::uint32_t a = 0; a < 8; ++a)
      for (std::uint32_t o = 0; o < 8; ++o) CHECK(limits.allows(static_cast<op_id>(a), static_cast<op_id>(o)));
  }
}
