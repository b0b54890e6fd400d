// SPDX-License-Identifier: BSL-1.0
#include "remat/memory/interval.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../support/random_graph.hpp"
#include "../support/schedules.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"

namespace {

using remat::allocation;
using remat::interval;

TEST_CASE("an interval is its times and its size") {
  const interval a{2, 5, 64};
  CHECK(a == interval{2, 5, 64});
  CHECK_FALSE(a == interval{1, 5, 64});
  CHECK_FALSE(a == interval{2, 6, 64});
  CHECK_FALSE(a == interval{2, 5, 63});
  CHECK(interval{} == interval{0, 0, 0});
}

TEST_CASE("one interval for each allocation, in their order, whatever it holds") {
  remat::lifetimes lives;
  CHECK(remat::intervals_of(lives).empty());
  constexpr std::uint32_t last = 0xfffffffe;
  constexpr std::int64_t large = std::int64_t{1} << 60;
  lives.allocations = {{0, last, 3, 0, large}, {0, 1, allocation::no_tensor, 0, 7}, {2, 4, 1, 2, 0}, {2, 4, 1, 2, 0}};
  CHECK(remat::intervals_of(lives) == std::vector<interval>{{0, last, large}, {0, 1, 7}, {2, 4, 0}, {2, 4, 0}});
}

TEST_CASE("tensors that lie elsewhere have intervals of size 0; workspace never lies elsewhere") {
  remat::lifetimes lives;
  lives.allocations = {{0, 2, 3, 0, 8}, {0, 1, allocation::no_tensor, 0, 7}, {2, 4, 1, 2, 9}, {5, 6, 3, 2, 8}};
  const std::vector<remat::tensor_id> elsewhere{remat::tensor_id{3}, remat::tensor_id{0}};
  CHECK(remat::intervals_of(lives, elsewhere) == std::vector<interval>{{0, 2, 0}, {0, 1, 7}, {2, 4, 9}, {5, 6, 0}});
}

TEST_CASE("the intervals of a schedule add up to the memory that the checker sees at every step") {
  std::size_t schedules = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const remat::problem p =
        remat::test::random_problem(seed, {.operations = 4 + static_cast<std::uint32_t>(seed % 16)});
    const remat::schedule plan = remat::test::random_schedule(p, seed).plan;
    std::vector<std::int64_t> expected(plan.steps.size(), 0), sum(plan.steps.size(), 0);
    const remat::check_report report =
        remat::check(p, plan, [&](std::size_t i, std::int64_t bytes) { expected[i] = bytes; });
    if (!report.valid()) continue;
    ++schedules;
    for (const interval& k : remat::intervals_of(remat::lifetimes_of(p, plan)))
      for (std::int64_t i = k.lower; i < k.upper; ++i) sum[static_cast<std::size_t>(i)] += k.size;
    CHECK(sum == expected);
    CHECK((sum.empty() ? 0 : *std::max_element(sum.begin(), sum.end())) == report.peak_bytes);
  }
  CHECK(schedules > 200);
}

}  // namespace
