// SPDX-License-Identifier: BSL-1.0
#include "remat/portfolio/detail/split_part.hpp"

#include <doctest/doctest.h>

#include "remat/method/evict.hpp"
#include "remat/portfolio/detail/chain_bound_part.hpp"
#include "support/block_stack.hpp"
#include "support/data.hpp"
#include "support/portfolio.hpp"

using namespace remat;

namespace {

solution evict_side(const problem& side, const run_control& run) { return evict(side, {.run = run}); }

}  // namespace

TEST_CASE("both sides of a split are solved and joined to a schedule of the whole") {
  test::opened_pool opened(test::within(test::stack_problem(test::stack_kind::decoder, 4), 0.35));
  opened.run(detail::chain_bound_part(opened.setting), 10'000'000);
  const detail::portfolio_part part = detail::split_part(opened.setting, evict_side);
  const detail::part_slice slice = opened.run(part, 10'000'000);
  REQUIRE(slice.found.plan);
  CHECK(slice.found.by == "refined/split");
  CHECK(!slice.ended);
}

TEST_CASE("it runs once near the bound, and not again; without a moment it ends") {
  test::opened_pool opened(test::within(test::bundled_problem("rk/unet"), 0.5));
  const detail::portfolio_part part = detail::split_part(opened.setting, evict_side);
  detail::pool_view now = opened.known.view();
  now.best.time = 1.003 * now.best.lower_bound;
  CHECK(part.is_useful(now));
  part.publish(now);
  CHECK(!part.is_useful(now));
  now.best.time = 1.01 * now.best.lower_bound;
  CHECK(part.is_useful(now));

  now.moment.recomputation = 0;
  now.moments.clear();
  run_clock clock({.work_limit = 1000});
  CHECK(part.run(now, clock).ended);
}
