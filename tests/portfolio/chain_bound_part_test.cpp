// SPDX-License-Identifier: BSL-1.0
#include "remat/portfolio/detail/chain_bound_part.hpp"

#include <doctest/doctest.h>

#include "support/data.hpp"
#include "support/portfolio.hpp"

using namespace remat;

TEST_CASE("several moments bound more than one, and the other parts are told which") {
  test::opened_pool opened(test::within(test::bundled_problem("unet5-b16-256"), 0.3));
  const detail::portfolio_part part = detail::chain_bound_part(opened.setting);
  const double before = opened.known.best().lower_bound;
  REQUIRE(part.is_useful(opened.known.view()));
  opened.run(part, 10'000'000);
  CHECK(opened.last_work > 1000);  // the flows
  opened.run(part, 1000);
  CHECK(opened.last_work == 1000);  // there are more of them, but no limit is exceeded
  const detail::pool_view now = opened.known.view();
  CHECK(now.best.lower_bound > 1.001 * before);
  CHECK(now.instance.known_bound() == now.best.lower_bound);
  CHECK(now.moments.size() > 1);
  REQUIRE(now.chain != nullptr);
  CHECK(now.chain->moments.size() == now.moments.size());
}

TEST_CASE("a budget that nothing fits is proven to be infeasible") {
  test::opened_pool opened(test::bundled_problem("rk/fno1d").with_budget(1), false);
  detail::pool_view now(opened.p);
  run_clock clock({});
  CHECK(detail::chain_bound_part(opened.setting).run(now, clock).found.status == solve_status::infeasible);
}
