// SPDX-License-Identifier: BSL-1.0
#include "remat/portfolio/detail/solver_part.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <new>

#include "remat/method/evict.hpp"
#include "support/data.hpp"
#include "support/portfolio.hpp"

using namespace remat;

TEST_CASE("a solver runs again while it is cut off, and what it has found is refined where the gap is wide") {
  test::opened_pool opened(test::within(test::bundled_problem("resnet50-b64-224"), 0.4), false);
  int calls = 0;
  detail::portfolio_part part;
  part.name = "own";
  part.run = detail::slices_of(
      [&calls](const problem& p, const evict_options& options) {
        ++calls;
        return evict(p, options);
      },
      evict_options{});
  CHECK(!opened.run(part, 100).found.plan);
  CHECK(calls == 1);
  const detail::part_slice longer = opened.run(part, 4'000'000);
  CHECK(calls == 2);
  REQUIRE(longer.found.plan);
  CHECK(longer.found.by.ends_with("/search"));
  CHECK(longer.found.time < evict(opened.p).time);
  CHECK(!longer.ended);
  opened.run(part, 4'000'000);
  CHECK(calls == 2);  // it has ended: the rest refines
}

TEST_CASE("near the bound, or without a limit, the solver runs once, alone") {
  test::opened_pool opened(test::within(test::bundled_problem("resnet50-b64-224"), 0.4), false);
  const auto run = detail::slices_of(evict, evict_options{});
  run_clock clock({});
  const detail::part_slice slice = run(opened.known.view(), clock);
  CHECK(slice.ended);
  CHECK(slice.found.time == evict(opened.p.with_known_bound(opened.known.best().lower_bound)).time);
  CHECK(clock.work_done() == slice.found.statistics.work);
}

TEST_CASE("a solver without memory has found nothing, and its slice says so") {
  test::opened_pool opened(test::within(test::bundled_problem("rk/fno1d"), 0.6), false);
  const auto run = detail::slices_of([](const problem&, const evict_options&) -> solution { throw std::bad_alloc(); },
                                     evict_options{});
  run_clock clock({});
  CHECK(!run(opened.known.view(), clock).found.plan);
  CHECK(clock.is_out_of_memory());
}
