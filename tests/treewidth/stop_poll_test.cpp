// SPDX-License-Identifier: BSL-1.0
#include "remat/treewidth/detail/stop_poll.hpp"

#include <doctest/doctest.h>

#include <functional>

using remat::detail::stop_poll;

TEST_CASE("the stop function is asked once for every stride of steps, and never again after it answered true") {
  int asked = 0;
  bool answer = false;
  const std::function<bool()> stop = [&] {
    ++asked;
    return answer;
  };
  stop_poll poll(&stop, 10);
  CHECK_FALSE(poll.count(9));
  CHECK(asked == 0);
  CHECK_FALSE(poll.count(1));
  CHECK(asked == 1);
  CHECK_FALSE(poll.count(1000));
  CHECK(asked == 2);
  answer = true;
  CHECK_FALSE(poll.count(9));
  CHECK_FALSE(poll.stopped());
  CHECK(poll.count(1));
  CHECK(poll.stopped());
  CHECK(poll.count(1000));
  CHECK(asked == 3);
}

TEST_CASE("without a stop function nothing stops") {
  stop_poll poll(nullptr, 1);
  CHECK_FALSE(poll.count(1000));
  CHECK_FALSE(poll.stopped());
}
