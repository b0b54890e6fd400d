// SPDX-License-Identifier: BSL-1.0
#include "remat/solver/frontier.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>

#include "remat/bound/least_memory.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/core/error.hpp"
#include "remat/io/json.hpp"
#include "remat/method/detail/evict_with_copies.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/schedule.hpp"
#include "support/exhaustive.hpp"
#include "support/held_to_the_end.hpp"
#include "support/random_graph.hpp"

using namespace remat;

TEST_CASE("no schedule that is fast enough needs less than the bound") {
  std::size_t above_any_time = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const problem p = test::random_problem(seed, {.operations = 3 + static_cast<std::uint32_t>(seed % 4)});
    const std::int64_t any_time = least_memory_bound(p).bytes;
    for (const double overhead : {0.0, 0.2, 0.7}) {
      const double most = p.graph().baseline_time * (1 + overhead);
      const std::int64_t least = least_memory_within(p, most);
      INFO("seed ", seed, " overhead ", overhead);
      REQUIRE(least >= any_time);
      if (least > 0) REQUIRE(test::least_time(p.with_budget(least - 1)) > most);
      above_any_time += least > any_time;
    }
  }
  CHECK(above_any_time > 100);
}

TEST_CASE("the bound is the largest budget whose own bound takes too long, nearly") {
  for (const char* name : {"unet5-b16-256", "resnet50-b64-224"}) {
    const problem p = read_training_step(std::string(REMAT_TEST_DATA "/graphs/") + name + ".json").instance;
    const flat_graph& g = p.graph();
    const auto bound = [&](std::int64_t budget) { return turnaround_bound(p.with_budget(budget)).lower_bound; };
    std::int64_t before = std::numeric_limits<std::int64_t>::max();
    for (const double overhead : {0.02, 0.1, 0.3}) {
      const double most = g.baseline_time * (1 + overhead);
      const std::int64_t least = least_memory_within(p, most);
      CHECK(bound(least - 1) > most);
      CHECK(bound(least + g.baseline_peak / 500) <= most);
      CHECK(least <= before);
      before = least;
      // A smaller budget is either within the proof or does not change it.
      CHECK(least_memory_within(p.with_budget(least - 1), most) == least);
    }
  }
}

TEST_CASE("chains of moments raise the bound where much runs again, and it stays one") {
  const problem p = read_training_step(REMAT_TEST_DATA "/graphs/rk/gpt2-like-2l.json").instance;
  const double most = p.graph().baseline_time * 1.3;
  CHECK(least_memory_within(p, most, {.chain_moments = 8}) >= least_memory_within(p, most));
  std::size_t raised = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const problem small = test::random_problem(seed, {.operations = 5 + static_cast<std::uint32_t>(seed % 3)});
    const double longest = small.graph().baseline_time * 1.5;
    const std::int64_t plain = least_memory_within(small, longest);
    const std::int64_t least = least_memory_within(small, longest, {.chain_moments = 8});
    INFO("seed ", seed);
    REQUIRE(least >= plain);
    if (least > 0) REQUIRE(test::least_time(small.with_budget(least - 1)) > longest);
    raised += least > plain;
  }
  CHECK(raised > 0);
}

TEST_CASE("with a link the bound counts copies") {
  const problem p = read_training_step(REMAT_TEST_DATA "/graphs/unet5-b16-256.json").instance;
  const double most = p.graph().baseline_time * 1.05;
  const problem fast = p.with_link({.out = 1e15, .in = 1e15}), slow = p.with_link({.out = 1, .in = 1});
  CHECK(least_memory_within(fast, most) < least_memory_within(slow, most));
  CHECK(least_memory_within(slow, most) <= least_memory_within(p, most) + p.graph().baseline_peak / 500);
}

TEST_CASE("a time that nothing can have needs more than the budget; a time that is no number is refused") {
  const problem p = read_training_step(REMAT_TEST_DATA "/graphs/toy-skip-3.json").instance;
  CHECK(least_memory_within(p.with_budget(1 << 30), p.graph().needed_time / 2) == (1 << 30) + 1);
  CHECK(least_memory_within(p, p.graph().needed_time / 2) == problem::unlimited);
  CHECK_THROWS_AS((void)least_memory_within(p, std::numeric_limits<double>::quiet_NaN()), bad_argument);
}

TEST_CASE("with a link, a schedule that exists is not proven away") {
  const problem p = test::held_to_the_end(600'000'600, 2'600'000'000);
  schedule plan;
  plan.compute(op_id{0});
  plan.offload(tensor_id{0});
  plan.compute(op_id{1});
  plan.free(tensor_id{0});
  plan.compute(op_id{2});
  plan.free(tensor_id{1});
  plan.prefetch(tensor_id{0});
  plan.compute(op_id{3});
  const check_report report = check(p, plan);
  REQUIRE(report.valid());
  REQUIRE(report.time == 4);
  CHECK(least_memory_within(p, 4) <= report.peak_bytes);
  CHECK(least_memory_within(p.with_budget(problem::unlimited), 4) <= report.peak_bytes);
  CHECK(least_memory_for(p, 4, evict_with_copies).status != solve_status::infeasible);
}
