// SPDX-License-Identifier: BSL-1.0
#include "remat/portfolio/detail/random_eviction_part.hpp"

#include <doctest/doctest.h>

#include "support/data.hpp"
#include "support/portfolio.hpp"

using namespace remat;

TEST_CASE("random preferences find what plain eviction does not, other ones in each slice") {
  test::opened_pool opened(test::within(test::bundled_problem("resnet50-b64-224"), 0.4));
  const detail::portfolio_part part = detail::random_eviction_part(opened.setting);
  const double before = opened.known.best().time;
  const detail::part_slice first = opened.run(part, 2'000'000), second = opened.run(part, 2'000'000);
  REQUIRE(first.found.plan);
  REQUIRE(second.found.plan);
  CHECK(first.found.by.starts_with("refined/evict"));
  CHECK(*first.found.plan != *second.found.plan);
  CHECK(opened.known.best().time < before);
}
