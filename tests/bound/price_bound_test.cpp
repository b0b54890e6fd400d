// SPDX-License-Identifier: BSL-1.0
#include "remat/bound/detail/price_bound.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "remat/bound/turnaround.hpp"
#include "remat/core/run.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"
#include "support/data.hpp"
#include "support/exhaustive.hpp"
#include "support/random_graph.hpp"

using namespace remat;
using namespace remat::detail;

TEST_CASE("it is what turnaround_bound says by default, and what the end of a solve proves") {
  CHECK(turnaround_options{}.moments == usual_moments);
  std::size_t infeasible = 0, positive = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const problem whole =
        test::random_problem(seed, {.operations = 4 + static_cast<std::uint32_t>(seed % 20), .once = 20});
    for (const double part : {0.9, 0.7, 0.5, 0.3}) {
      const problem p = test::within(whole, part);
      CAPTURE(seed);
      CAPTURE(part);
      turnaround_state state(p);
      run_clock clock({});
      price_bound search(state, p.budget(), usual_moments, clock);
      const bool may_fit = search.run();
      const turnaround_result r = turnaround_bound(p);
      CHECK(r.infeasible == !may_fit);
      CHECK(r.least_memory.bytes == search.least_memory().bytes);
      CHECK(r.moments_tried == search.moments_tried());
      if (may_fit) CHECK(r.lower_bound == search.lower_bound());
      solution s;
      CHECK(prove(p, s) == !may_fit);
      if (p.budget() < p.graph().baseline_peak) CHECK(s.lower_bound == r.lower_bound);
      infeasible += !may_fit;
      positive += may_fit && search.best().value > 0;
    }
  }
  CHECK(infeasible > 50);
  CHECK(positive > 150);
}

TEST_CASE("no schedule of a small step is faster, also with the lines of other budgets") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const problem whole = test::random_problem(seed, {.operations = 3 + static_cast<std::uint32_t>(seed % 4)});
    turnaround_state state(whole);
    for (const double part : {0.9, 0.7, 0.5}) {
      const problem p = test::within(whole, part);
      CAPTURE(seed);
      CAPTURE(part);
      run_clock clock({});
      price_bound search(state, p.budget(), usual_moments, clock);
      const double optimum = test::least_time(p);
      if (search.run())
        CHECK(search.lower_bound() <= optimum);
      else
        CHECK(std::isinf(optimum));
    }
  }
}
