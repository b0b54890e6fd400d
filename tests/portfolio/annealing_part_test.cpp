// SPDX-License-Identifier: BSL-1.0
#include "remat/portfolio/detail/annealing_part.hpp"

#include <doctest/doctest.h>

#include "support/data.hpp"
#include "support/portfolio.hpp"

using namespace remat;

TEST_CASE("annealing closes the solve: from all schedules, with another seed in each slice") {
  test::opened_pool opened(test::within(test::bundled_problem("rk/unet"), 0.5));
  const detail::portfolio_part part = detail::annealing_part(opened.setting);
  CHECK(part.is_closing);
  const double before = opened.known.best().time;
  const detail::pool_view now = opened.known.view();
  run_clock one({.work_limit = 1'000'000}), other({.work_limit = 1'000'000});
  const detail::part_slice first = part.run(now, one), second = part.run(now, other);
  REQUIRE(first.found.plan);
  REQUIRE(second.found.plan);
  CHECK(first.found.time < before);
  CHECK(*first.found.plan != *second.found.plan);
  CHECK(one.work_done() <= 1'010'000);
}

TEST_CASE("it needs a schedule to start from") {
  test::opened_pool opened(test::within(test::bundled_problem("rk/unet"), 0.5), false);
  const detail::portfolio_part part = detail::annealing_part(opened.setting);
  CHECK(!part.is_useful(opened.known.view()));
  CHECK(!opened.run(part, 1000).found.plan);
}
