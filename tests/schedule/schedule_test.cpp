// SPDX-License-Identifier: BSL-1.0
#include "remat/schedule/schedule.hpp"

#include <doctest/doctest.h>

TEST_CASE("a step is four bytes and knows what it is") {
  using namespace remat;  // NOLINT: a test
  static_assert(sizeof(step) == 4);
  constexpr auto largest = static_cast<std::uint32_t>((std::uint64_t{1} << 31) - 1);
  for (const std::uint32_t id : {0U, 1U, 77U, largest}) {
    const step c = step::compute(static_cast<op_id>(id));
    const step f = step::free(static_cast<tensor_id>(id));
    CHECK(c.is_compute());
    CHECK_FALSE(c.is_free());
    CHECK(index(c.operation()) == id);
    CHECK(f.is_free());
    CHECK(index(f.tensor()) == id);
    CHECK_FALSE(c == f);
  }
  schedule plan;
  plan.compute(op_id{3});
  plan.free(tensor_id{3});
  CHECK(plan.steps.size() == 2);
  CHECK(plan.steps[0] == step::compute(op_id{3}));
  CHECK(plan.steps[1] == step::free(tensor_id{3}));
}
