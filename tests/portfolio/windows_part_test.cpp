// SPDX-License-Identifier: BSL-1.0
#include "remat/portfolio/detail/windows_part.hpp"

#include <doctest/doctest.h>

#include "remat/method/evict.hpp"
#include "remat/portfolio/detail/window_schedules.hpp"
#include "support/data.hpp"
#include "support/portfolio.hpp"

using namespace remat;

TEST_CASE("windows of the best schedule are faster than it") {
  const problem whole = test::bundled_problem("rk/unet");
  test::opened_pool opened(test::within(whole, 0.5), false);
  opened.known.put(evict(test::within(whole, 0.4)).plan.value(), "evict");  // it leaves memory free
  const detail::portfolio_part part = detail::windows_part(opened.setting);
  REQUIRE(part.is_useful(opened.known.view()));
  const double before = opened.known.best().time;
  for (int slice = 0; slice < 3; ++slice) opened.run(part, 1'000'000);
  CHECK(opened.known.best().time < before);
  CHECK(opened.known.best().by == "refined/windows");
}

TEST_CASE("without a schedule, or near the bound, there is nothing to do") {
  test::opened_pool opened(test::within(test::bundled_problem("rk/unet"), 0.5), false);
  const detail::portfolio_part part = detail::windows_part(opened.setting);
  CHECK(!part.is_useful(opened.known.view()));
  run_clock clock({.work_limit = 1000});
  CHECK(!part.run(opened.known.view(), clock).found.plan);
  CHECK(detail::anneals_windows(opened.setting));
}
