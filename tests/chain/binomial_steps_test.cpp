// SPDX-License-Identifier: BSL-1.0
#include "remat/chain/detail/binomial_steps.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/core/detail/binomial.hpp"
#include "support/random_chain.hpp"

using namespace remat;

TEST_CASE("the steps are legal, keep at most so many checkpoints, and run as many steps forward as the formula says") {
  for (std::uint32_t length = 1; length <= 24; ++length)
    for (std::uint32_t slots = 0; slots <= length; ++slots) {
      CAPTURE(length);
      CAPTURE(slots);
      const chain_problem p(test::unit_chain(length, 1), 1000);
      const std::vector<chain_step> steps = detail::binomial_steps(length, slots);
      CHECK(simulate(p, steps).legal);
      const auto forward = std::count_if(steps.begin(), steps.end(), [](const chain_step& s) {
        return s.action == chain_action::forward_checkpoint || s.action == chain_action::forward_none;
      });
      CHECK(static_cast<std::uint64_t>(forward) == detail::binomial::advances(length, slots));
      CHECK(steps.size() == static_cast<std::size_t>(forward) + 2 * std::size_t{length} + 2);
    }
}
