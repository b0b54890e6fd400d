// SPDX-License-Identifier: BSL-1.0
#include "remat/refine/detail/retention.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/refine/detail/moves.hpp"
#include "remat/refine/detail/timeline.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/random_graph.hpp"
#include "support/schedules.hpp"

using namespace remat;
using namespace remat::detail;

TEST_CASE("the peak is the checker's, and what goes leaves a legal schedule within the budget") {
  std::size_t removed = 0, refused = 0;
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    const problem free = test::random_problem(seed, {.operations = 5 + static_cast<std::uint32_t>(seed % 14)});
    const test::random_schedule made(free, seed);
    if (!check(free, made.plan).valid()) continue;
    const schedule plan = simplify(free, made.plan);
    const std::int64_t peak = check(free, plan).peak_bytes;
    for (const std::int64_t budget : {peak, peak + 3, problem::unlimited}) {
      const problem p = free.with_budget(budget);
      retention line(p, plan);
      REQUIRE(line.peak() == peak);
      if (line.size() == 0) continue;
      std::size_t left = line.size();
      random_source random(seed);
      for (int round = 0; round < 20; ++round) {
        const std::uint32_t x = random.below(static_cast<std::uint32_t>(line.size()));
        if (!line.removable(x)) continue;
        const std::vector<std::uint32_t> before = line.computes();
        const std::int64_t was = line.peak();
        const bool went = line.try_remove(x);
        const std::vector<std::uint32_t> after = line.computes();
        const check_report now = check(p, schedule_computes(p, after));
        REQUIRE_MESSAGE(now.valid(), now.message());
        if (went) {
          ++removed;
          REQUIRE(after.size() < left);
          left = after.size();
          // Nothing that is left is there in vain, so the schedule has the same computes, and the same peak.
          if (now.computes == after.size()) REQUIRE(now.peak_bytes == line.peak());
        } else {
          ++refused;
          REQUIRE(after == before);
          REQUIRE(line.peak() == was);
        }
      }
    }
  }
  CHECK(removed > 1000);
  CHECK(refused > 300);
}

TEST_CASE("it does what a timeline does, run by run") {
  std::size_t compared = 0;
  for (std::uint64_t seed = 0; seed < 800; ++seed) {
    const problem free = test::random_problem(seed, {.operations = 6 + static_cast<std::uint32_t>(seed % 14)});
    const test::random_schedule made(free, seed);
    if (!check(free, made.plan).valid()) continue;
    const schedule plan = simplify(free, made.plan);
    const problem p = free.with_budget(check(free, plan).peak_bytes + static_cast<std::int64_t>(seed % 5));
    retention line(p, plan);
    timeline reference(p);
    reference.load(plan);
    refine_moves moves(reference, 0);
    moves.most_repairs = 0;
    for (std::uint32_t x = 0; x < line.size(); ++x) {
      const timeline::node node = x + 2;  // freshly loaded nodes are numbered by their places
      REQUIRE(line.removable(x) == (reference.alive(node) && reference.removable(node)));
      if (!line.removable(x)) continue;
      REQUIRE(line.try_remove(x) == moves.retain(node));
      REQUIRE(line.computes() == reference.computes());
      ++compared;
    }
  }
  CHECK(compared > 300);
}
