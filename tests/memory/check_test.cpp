// SPDX-License-Identifier: BSL-1.0
#include "remat/memory/check.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "remat/schedule/check.hpp"
#include "remat/schedule/lifetime.hpp"
#include "support/random_graph.hpp"
#include "support/schedules.hpp"

namespace {
using namespace remat;  // NOLINT: a test

bool apart(const std::vector<interval>& all, const std::vector<std::int64_t>& offsets) {
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (all[i].lower < all[j].upper && all[j].lower < all[i].upper && offsets[i] < offsets[j] + all[j].size &&
          offsets[j] < offsets[i] + all[i].size && all[i].size > 0 && all[j].size > 0)
        return false;
  return true;
}
}  // namespace

TEST_CASE("an interval is its times and its size") {
  const interval a{2, 5, 64};
  CHECK(a == interval{2, 5, 64});
  CHECK_FALSE(a == interval{1, 5, 64});
  CHECK_FALSE(a == interval{2, 6, 64});
  CHECK_FALSE(a == interval{2, 5, 63});
  CHECK(interval{} == interval{0, 0, 0});
}

TEST_CASE("one interval for each allocation, in their order, whatever it holds") {
  lifetimes lives;
  CHECK(intervals_of(lives).empty());
  constexpr std::uint32_t last = 0xfffffffe;
  constexpr std::int64_t large = std::int64_t{1} << 60;
  lives.allocations = {{0, last, 3, 0, large}, {0, 1, allocation::no_tensor, 0, 7}, {2, 4, 1, 2, 0}, {2, 4, 1, 2, 0}};
  CHECK(intervals_of(lives) == std::vector<interval>{{0, last, large}, {0, 1, 7}, {2, 4, 0}, {2, 4, 0}});
}

TEST_CASE("tensors that lie elsewhere have intervals of size 0; workspace never lies elsewhere") {
  lifetimes lives;
  lives.allocations = {{0, 2, 3, 0, 8}, {0, 1, allocation::no_tensor, 0, 7}, {2, 4, 1, 2, 9}, {5, 6, 3, 2, 8}};
  const std::vector<tensor_id> elsewhere{tensor_id{3}, tensor_id{0}, tensor_id{allocation::no_tensor}};
  CHECK(intervals_of(lives, elsewhere) == std::vector<interval>{{0, 2, 0}, {0, 1, 7}, {2, 4, 9}, {5, 6, 0}});
}

TEST_CASE("copies on the host have intervals of their own, for an arena of the host") {
  lifetimes lives;
  CHECK(host_intervals_of(lives).empty());
  lives.allocations = {{0, 2, 3, 0, 8}};
  lives.host = {{0, 2, 3, allocation::no_operation, 8}, {1, 6, 2, allocation::no_operation, 0}};
  CHECK(host_intervals_of(lives) == std::vector<interval>{{0, 2, 8}, {1, 6, 0}});
}

TEST_CASE("the intervals of a schedule add up to the memory that the checker sees at every step") {
  std::size_t schedules = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const problem p = test::random_problem(seed, {.operations = 4 + static_cast<std::uint32_t>(seed % 16)});
    const schedule plan = test::random_schedule(p, seed).plan;
    std::vector<std::int64_t> expected(plan.steps.size(), 0), sum(plan.steps.size(), 0);
    const check_report report = check(p, plan, [&](std::size_t i, std::int64_t bytes) { expected[i] = bytes; });
    if (!report.valid()) continue;
    ++schedules;
    for (const interval& k : intervals_of(lifetimes_of(p, plan)))
      for (std::int64_t i = k.lower; i < k.upper; ++i) sum[static_cast<std::size_t>(i)] += k.size;
    CHECK(sum == expected);
    CHECK((sum.empty() ? 0 : *std::max_element(sum.begin(), sum.end())) == report.peak_bytes);
  }
  CHECK(schedules > 200);
}

TEST_CASE("the sweep finds overlaps exactly where comparing all pairs does") {
  std::size_t good = 0, bad = 0;
  std::mt19937_64 engine(1);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(n));
  };
  for (int round = 0; round < 20000; ++round) {
    const std::int64_t spread = 1 + below(60);
    std::vector<interval> all(static_cast<std::size_t>(below(9)));
    std::vector<std::int64_t> offsets;
    for (interval& x : all) {
      x.lower = below(10) - 5;
      x.upper = x.lower + 1 + below(5);
      x.size = below(8);
      offsets.push_back(below(spread));
    }
    const memory_check_report report = check_memory(all, offsets, 100);
    INFO("round ", round, ": ", report.message());
    CHECK(report.valid() == apart(all, offsets));
    if (report.valid()) {
      ++good;
    } else {
      ++bad;
      REQUIRE(report.what == memory_violation::overlap);
      const std::vector<interval> two{all[report.at], all[report.other]};
      CHECK_FALSE(apart(two, {offsets[report.at], offsets[report.other]}));
    }
  }
  CHECK(good > 3000);
  CHECK(bad > 3000);
}

TEST_CASE("every other violation is named, with the interval") {
  const std::vector<interval> two{{0, 4, 10}, {2, 6, 10}};
  using offsets = std::vector<std::int64_t>;
  CHECK(check_memory(two, offsets{0, 16}, 32, 16).message() == "valid");
  CHECK(check_memory(two, offsets{0}, 32).what == memory_violation::wrong_count);
  CHECK(check_memory(two, offsets{0, 16, 32}, 64).what == memory_violation::wrong_count);
  CHECK(check_memory(two, offsets{0, 16}, 32, 0).what == memory_violation::bad_alignment);
  const memory_check_report crooked = check_memory(two, offsets{0, 17}, 32, 16);
  CHECK(crooked.what == memory_violation::misaligned);
  CHECK(crooked.message() == "the offset of interval 1 is no multiple of the alignment");
  CHECK(check_memory(two, offsets{0, 16}, 25, 16).what == memory_violation::out_of_arena);
  CHECK(check_memory(two, offsets{0, 16}, 25, 16).at == 1);
  CHECK(check_memory(two, offsets{0, 16}, 26, 16).valid());
  CHECK(check_memory(two, offsets{-16, 0}, 32, 16).what == memory_violation::out_of_arena);
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  CHECK(check_memory(two, offsets{0, largest}, largest).what == memory_violation::out_of_arena);
  CHECK(check_memory(std::vector<interval>{{0, 4, -1}}, offsets{0}, 32).what == memory_violation::bad_interval);
  CHECK(check_memory(std::vector<interval>{{4, 4, 1}}, offsets{0}, 32).what == memory_violation::bad_interval);
  CHECK(check_memory(std::vector<interval>{{3, 4, 1}}, offsets{0}, 32).valid());
  CHECK(check_memory(two, offsets{0, 9}, 32).message() == "interval 1 and interval 0 share bytes at the same time");
  CHECK(check_memory({}, {}, 0).valid());
}
