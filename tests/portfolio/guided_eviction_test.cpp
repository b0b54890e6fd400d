// SPDX-License-Identifier: BSL-1.0
#include "remat/portfolio/detail/guided_eviction.hpp"

#include <doctest/doctest.h>

#include "remat/bound/turnaround.hpp"
#include "support/data.hpp"
#include "support/large_steps.hpp"
#include "support/portfolio.hpp"

using namespace remat;

namespace {

/// The overhead of the schedules of guided eviction over the bound; of plain eviction with `is_plain`.
double gap_of(const problem& p, bool is_plain) {
  test::opened_pool opened(p);
  const turnaround_result bound = opened.analysis.bound(p.budget(), {});
  run_clock clock({});
  if (!is_plain) detail::guided_eviction(opened.setting, opened.known, bound, clock).run();
  REQUIRE(opened.known.best().plan);
  CHECK(check(p, *opened.known.best().plan).valid());
  return opened.known.best().time / opened.known.best().lower_bound - 1;
}

}  // namespace

TEST_CASE("holding on to what a bound keeps is nearer to the bound than plain eviction") {
  const problem resnet = test::within(test::bundled_problem("resnet50-b64-224"), 0.5);
  CHECK(gap_of(resnet, false) < 0.7 * gap_of(resnet, true));
}

TEST_CASE("on a large step fillings come first") {
  const problem p = test::within(test::large_step(test::step_family::recurrence, 6000), 0.5);
  REQUIRE(p.graph().num_operations > detail::graph_sizes::quick_eviction);
  CHECK(gap_of(p, false) < 0.5 * gap_of(p, true));
}
