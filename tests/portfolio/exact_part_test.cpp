// SPDX-License-Identifier: BSL-1.0
#include "remat/portfolio/detail/exact_part.hpp"

#include <doctest/doctest.h>

#include "remat/method/exact.hpp"
#include "support/data.hpp"
#include "support/portfolio.hpp"

using namespace remat;

TEST_CASE("the exact search closes the gap of a small step") {
  test::opened_pool opened(test::within(test::bundled_problem("fno1d-b32-8192"), 0.6));
  const detail::portfolio_part part = detail::exact_part(opened.setting);
  REQUIRE(part.is_useful(opened.known.view()));
  const detail::part_slice slice = opened.run(part, 400'000'000);
  CHECK(slice.ended);
  CHECK(opened.known.best().is_within(0));
  CHECK(!part.is_useful(opened.known.view()));
  if (slice.found.plan) CHECK(slice.found.by == "refined/exact");
}

TEST_CASE("it runs no heuristic of its own, and what is cut off may go on") {
  test::opened_pool opened(test::within(test::bundled_problem("rk/unet"), 0.5), false);
  const detail::part_slice slice = opened.run(detail::exact_part(opened.setting), 100'000);
  CHECK(!slice.found.plan);
  CHECK(!slice.ended);
  CHECK(opened.known.best().lower_bound > opened.p.graph().needed_time);
}
