// SPDX-License-Identifier: BSL-1.0
#include "train/step_times.hpp"

#include <doctest/doctest.h>

#include <stdexcept>

using namespace train;

TEST_CASE("quartiles of times in any order") {
  const quartiles q = quartiles_of({5, 1, 4, 2, 3});
  CHECK(q.first == 2);
  CHECK(q.median == 3);
  CHECK(q.third == 4);
  const quartiles between = quartiles_of({4, 2});
  CHECK(between.first == 2.5);
  CHECK(between.median == 3);
  CHECK(between.third == 3.5);
  CHECK(quartiles_of({7}).first == 7);
  CHECK(quartiles_of({7}).third == 7);
  CHECK_THROWS_AS(static_cast<void>(quartiles_of({})), std::invalid_argument);
}

TEST_CASE("one slow step moves no median") { CHECK(quartiles_of({2, 2, 2, 900, 2}).median == 2); }

TEST_CASE("a fifth of the steps does not count, and at least two; at least one counts") {
  CHECK(warm_up_steps(3) == 2);
  CHECK(warm_up_steps(10) == 2);
  CHECK(warm_up_steps(20) == 4);
  for (std::size_t steps = 3; steps < 100; ++steps) CHECK(warm_up_steps(steps) < steps);
}
