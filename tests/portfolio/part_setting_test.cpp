// SPDX-License-Identifier: BSL-1.0
#include "remat/portfolio/detail/part_setting.hpp"

#include <doctest/doctest.h>

#include "remat/method/evict.hpp"
#include "remat/method/no_remat.hpp"
#include "support/data.hpp"
#include "support/portfolio.hpp"

using namespace remat;
using namespace remat::detail;

TEST_CASE("a part keeps the better of two valid schedules, under its name, and refuses others") {
  const problem whole = test::bundled_problem("rk/fno1d");
  const problem p = test::within(whole, 0.6);
  const test::opened_pool opened(p);
  CHECK(opened.setting.size() == p.graph().num_operations);
  CHECK(opened.setting.name_of("split") == "refined/split");
  const schedule slow = evict(test::within(whole, 0.5)).plan.value(), fast = evict(p).plan.value();
  solution found;
  CHECK(keep_valid(p, slow, "slow", found) == check(p, slow).time);
  CHECK(keep_valid(p, fast, "fast", found) == check(p, fast).time);
  CHECK(found.by == "fast");
  keep_valid(p, slow, "slow", found);
  CHECK(found.by == "fast");
  CHECK(found.time == check(p, fast).time);
  const schedule too_large = no_remat(whole.with_budget(problem::unlimited)).plan.value();
  CHECK_THROWS_AS(keep_valid(p, too_large, "large", found), internal_error);
}
