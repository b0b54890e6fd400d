// SPDX-License-Identifier: BSL-1.0
#include "remat/refine/detail/timeline.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "remat/core/detail/random.hpp"
#include "remat/refine/detail/moves.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/random_graph.hpp"
#include "support/schedules.hpp"

namespace {

using namespace remat;
using namespace remat::detail;  // NOLINT: a test

/// Everything that a timeline says of itself, against the exact checker on the schedule that it stands for.
void compare(const problem& p, timeline& plan) {
  const std::vector<std::uint32_t> order = plan.computes();
  const schedule built = schedule_computes(p, order);
  std::vector<std::int64_t> memory;
  const problem unlimited = p.with_budget(problem::unlimited);
  const check_report r = check(unlimited, built, [&](std::size_t i, std::int64_t bytes) {
    if (built.steps[i].is_compute()) memory.push_back(bytes);
  });
  REQUIRE_MESSAGE(r.valid(), r.message());
  if (r.computes != order.size()) return;  // computes that nobody reads are left out of the schedule
  std::size_t i = 0;
  std::int64_t excess = 0;
  double area = 0;
  for (timeline::node x = plan.next(timeline::head); x != timeline::tail; x = plan.next(x), ++i) {
    REQUIRE(plan.memory(x) == memory[i]);
    REQUIRE(plan.precedes(plan.previous(x), x));
    excess += std::max<std::int64_t>(0, memory[i] - p.budget());
    area += static_cast<double>(plan.gap(x));
  }
  std::int64_t outputs = 0;
  for (const std::uint32_t t : p.graph().final_outputs) outputs += p.graph().bytes[t];
  excess += std::max<std::int64_t>(0, outputs - p.budget());
  CHECK(plan.excess() == excess);
  CHECK(plan.area() == area);
  CHECK(plan.time() == r.time);  // whole times: sums are exact
  CHECK((plan.violated() == timeline::none) == (excess == 0));
}

}  // namespace

TEST_CASE("a loaded schedule has the checker's memory at every compute") {
  std::size_t loaded = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const problem free = test::random_problem(seed, {.operations = 5 + static_cast<std::uint32_t>(seed % 12)});
    const problem p = free.with_budget(free.graph().baseline_peak * 2 / 3);
    const test::random_schedule made(p, seed);
    if (!check(free, made.plan).valid()) continue;
    timeline plan(p);
    plan.load(made.plan);
    compare(p, plan);
    ++loaded;
  }
  CHECK(loaded > 1000);
}

TEST_CASE("random edits keep memory exact, and undo restores everything") {
  std::size_t edits = 0, undone = 0, moved = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const problem free = test::random_problem(seed, {.operations = 6 + static_cast<std::uint32_t>(seed % 12)});
    const problem p = free.with_budget(free.graph().baseline_peak * 2 / 3);
    const test::random_schedule made(p, seed);
    if (!check(free, made.plan).valid()) continue;
    timeline plan(p);
    plan.load(made.plan);
    random_source random(seed);
    for (int round = 0; round < 30; ++round) {
      const std::vector<std::uint32_t> before = plan.computes();
      const std::int64_t excess = plan.excess();
      const double area = plan.area();
      for (std::uint32_t k = random.below(4); k-- > 0;) {
        const timeline::node x = random.below(static_cast<std::uint32_t>(plan.node_limit()));
        if (x <= timeline::tail || !plan.alive(x)) continue;
        const std::uint32_t kind = random.below(3);
        if (kind == 0 && plan.removable(x)) {
          plan.remove(x);
          ++edits;
        } else if (kind == 1) {
          const std::uint32_t o = random.below(p.graph().num_operations);
          bool ready = plan.rerunnable(o);
          for (const std::uint32_t t : p.graph().inputs[o]) {
            const std::size_t i = plan.first_event_from(t, x);
            ready = ready && i > 0 && p.graph().producers[t].size() == 1;
          }
          if (!ready) continue;
          plan.insert(o, x);
          ++edits;
        } else if (kind == 2) {
          const timeline::node y = random.below(static_cast<std::uint32_t>(plan.node_limit()));
          if (y == timeline::head || !plan.alive(y) || !plan.movable(x, y)) continue;
          plan.move(x, y);
          ++moved;
        }
      }
      compare(p, plan);
      if (random.below(2) == 0) {
        plan.undo();
        ++undone;
        CHECK(plan.computes() == before);
        CHECK(plan.excess() == excess);
        CHECK(plan.area() == area);
        compare(p, plan);
      } else {
        plan.keep();
      }
    }
  }
  CHECK(edits > 2000);
  CHECK(undone > 2000);
  CHECK(moved > 500);
}

TEST_CASE("the excess over any budget is the checker's") {
  const problem free = test::random_problem(7, {.operations = 14, .once = 0});
  const test::random_schedule made(free, 7);
  for (std::int64_t budget = 0; budget <= free.graph().baseline_peak; ++budget) {
    const problem p = free.with_budget(budget);
    timeline plan(p);
    plan.load(made.plan);
    compare(p, plan);
  }
}
