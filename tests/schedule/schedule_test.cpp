// SPDX-License-Identifier: BSL-1.0
#include "remat/schedule/schedule.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace remat;  // NOLINT: a test

TEST_CASE("a step is four bytes and knows what it is") {
  static_assert(sizeof(step) == 4);
  constexpr auto last_operation = static_cast<std::uint32_t>((std::uint64_t{1} << 31) - 1);
  constexpr auto last_tensor = static_cast<std::uint32_t>(step::max_tensors - 1);
  static_assert(last_tensor == 536870911);
  for (const std::uint32_t id : {0U, 1U, 77U, last_tensor, last_operation}) {
    const step c = step::compute(static_cast<op_id>(id));
    CHECK(c.kind() == step_kind::compute);
    CHECK(c.is_compute());
    CHECK_FALSE(c.is_free());
    CHECK_FALSE(c.is_copy());
    CHECK(index(c.operation()) == id);
  }
  for (const std::uint32_t id : {0U, 1U, 77U, last_tensor}) {
    const auto t = static_cast<tensor_id>(id);
    const std::array all{step::compute(static_cast<op_id>(id)), step::free(t), step::offload(t), step::prefetch(t),
                         step::drop(t)};
    for (std::size_t k = 0; k < all.size(); ++k) {
      CAPTURE(k);
      CHECK(all[k].kind() == static_cast<step_kind>(k));
      CHECK(all[k].is_compute() == (k == 0));
      CHECK(all[k].is_free() == (k == 1));
      CHECK(all[k].is_copy() == (k >= 2));
      if (k != 0) CHECK(index(all[k].tensor()) == id);
      for (std::size_t other = 0; other < all.size(); ++other) CHECK((all[k] == all[other]) == (k == other));
    }
  }
}

TEST_CASE("kinds have the names of the file format") {
  CHECK(to_string(step_kind::compute) == "compute");
  CHECK(to_string(step_kind::drop) == "drop");
  CHECK(enum_value<step_kind>("prefetch") == step_kind::prefetch);
  CHECK_FALSE(enum_value<step_kind>("load"));
}

TEST_CASE("steps are appended in order, and copies are found") {
  schedule plan;
  plan.compute(op_id{3});
  plan.free(tensor_id{3});
  CHECK(plan.steps == std::vector{step::compute(op_id{3}), step::free(tensor_id{3})});
  CHECK_FALSE(plan.has_copies());
  for (const auto add : {&schedule::offload, &schedule::prefetch, &schedule::drop}) {
    schedule copied = plan;
    (copied.*add)(tensor_id{4});
    CHECK(copied.has_copies());
    CHECK(has_copies(copied));
  }
  plan.offload(tensor_id{4});
  plan.prefetch(tensor_id{5});
  plan.drop(tensor_id{6});
  CHECK(plan.steps[2] == step::offload(tensor_id{4}));
  CHECK(plan.steps[3] == step::prefetch(tensor_id{5}));
  CHECK(plan.steps[4] == step::drop(tensor_id{6}));
}
