// SPDX-License-Identifier: BSL-1.0
#include "remat/portfolio/detail/joint_bound_part.hpp"

#include <doctest/doctest.h>

#include "remat/portfolio/detail/chain_bound_part.hpp"
#include "support/data.hpp"
#include "support/portfolio.hpp"

using namespace remat;

TEST_CASE("moments together bound more than in a chain, slice after slice, and never above a schedule") {
  test::opened_pool opened(test::within(test::bundled_problem("rk/unet"), 0.5));
  opened.run(detail::chain_bound_part(opened.setting), 10'000'000);
  const double of_chain = opened.known.best().lower_bound;
  const detail::portfolio_part part = detail::joint_bound_part(opened.setting);
  REQUIRE(part.is_useful(opened.known.view()));
  double before = 0;
  for (int slice = 0; slice < 3; ++slice) {
    const double bound = opened.run(part, 300'000).found.lower_bound;
    CHECK(bound >= before);
    before = bound;
  }
  CHECK(opened.known.best().lower_bound > of_chain);
}

TEST_CASE("it waits for a schedule near enough, and ends near the bound") {
  test::opened_pool opened(test::within(test::bundled_problem("rk/unet"), 0.5));
  const detail::portfolio_part part = detail::joint_bound_part(opened.setting);
  detail::pool_view now = opened.known.view();
  now.best.time = 1.2 * now.best.lower_bound;
  CHECK(!part.is_useful(now));
  now.best.time = 1.05 * now.best.lower_bound;
  CHECK(part.is_useful(now));
  CHECK(now.closing_bound(0.02) == doctest::Approx(1.05 / 1.02 * now.best.lower_bound));
  now.best.time = 1.0005 * now.best.lower_bound;
  CHECK(!part.is_useful(now));
  now.best.plan.reset();
  CHECK(!part.is_useful(now));
}
