// SPDX-License-Identifier: BSL-1.0
#include "support/large_steps.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>

#include "remat/core/error.hpp"
#include "remat/problem/problem.hpp"

namespace {

using namespace remat;  // NOLINT: a test

bool same(const flat_graph& a, const flat_graph& b) {
  return a.inputs.values == b.inputs.values && a.outputs.values == b.outputs.values && a.bytes == b.bytes &&
         a.time == b.time;
}

}  // namespace

TEST_CASE("a family has about as many operations as asked for, all of them needed, and depends on the seed alone") {
  for (const auto& [name, family] : test::step_families) {
    CAPTURE(name);
    for (const std::uint32_t operations : {1000U, 3000U}) {
      const problem p = test::large_step(family, operations, 1);
      const flat_graph& g = p.graph();
      CHECK(g.num_operations >= operations * 4 / 5);
      CHECK(g.num_operations <= operations * 6 / 5);
      CHECK(std::find(g.needed.begin(), g.needed.end(), 0) == g.needed.end());
      CHECK(same(g, test::large_step(family, operations, 1).graph()));
      const bool is_random = family == test::step_family::chain || family == test::step_family::layered ||
                             family == test::step_family::layered_dag;
      CHECK(same(g, test::large_step(family, operations, 2).graph()) == !is_random);
    }
  }
  CHECK_THROWS_AS((void)test::large_step(test::step_family::chain, 10), bad_argument);
}
