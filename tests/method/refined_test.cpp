// SPDX-License-Identifier: BSL-1.0
#include "remat/method/refined.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <stop_token>
#include <string>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/io/json.hpp"
#include "remat/schedule/simplify.hpp"
#include "remat/solver/solution.hpp"
#include "support/exhaustive.hpp"
#include "support/random_graph.hpp"

namespace {

using namespace remat;  // NOLINT: a test

static_assert(solver_for<refined_solver, problem>);

problem bundled(const std::string& name) {
  return read_training_step(std::filesystem::path(REMAT_TEST_DATA) / "graphs" / (name + ".json")).instance;
}

}  // namespace

TEST_CASE("random graphs: the optimum, with the proof") {
  std::size_t possible = 0, found = 0, optimal = 0, proven = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const problem free = test::random_problem(seed + 5000, {.operations = 4 + static_cast<std::uint32_t>(seed % 4)});
    for (const int percent : {90, 70, 50}) {
      const problem p = free.with_budget(free.graph().baseline_peak * percent / 100);
      const double least = test::least_time(p);
      const bool feasible = least < std::numeric_limits<double>::infinity();
      const solution s = refined(p, {.gap = 0, .run = {.work_limit = 16'000}});
      INFO("seed ", seed, " at ", percent, " %, optimum ", least);
      REQUIRE(s.lower_bound <= least);
      if (s.status == solve_status::infeasible) REQUIRE_FALSE(feasible);
      if (s.plan) REQUIRE(s.time >= least);
      if (s.status == solve_status::optimal) REQUIRE(s.time == least);
      possible += feasible;
      found += s.has_schedule();
      optimal += s.plan && s.time == least;
      proven += s.status == solve_status::optimal;
    }
  }
  MESSAGE(found, " of ", possible, " found, ", optimal, " optimal, ", proven, " proven so");
  CHECK(found == possible);
  CHECK(optimal == found);
  CHECK(proven == found);
}

TEST_CASE("real graphs: close to the proven bound after little work") {
  // Gap that work of about a second is enough for, with room.
  const struct {
    const char* name;
    double fraction, gap;
  } rows[] = {{"gpt2-medium-b4-s512", 0.5, 0.004}, {"unet5-b16-256", 0.5, 0.006}, {"vgg16-b64-224", 0.5, 0.01}};
  for (const auto& row : rows) {
    const problem p = bundled(row.name);
    const auto budget = static_cast<std::int64_t>(row.fraction * static_cast<double>(p.graph().baseline_peak));
    const solution s = refined(p.with_budget(budget), {.run = {.work_limit = 500'000, .threads = 2}});
    INFO(row.name);
    REQUIRE(s.has_schedule());
    CHECK(s.peak_bytes <= budget);
    CHECK(s.time >= s.lower_bound);
    CHECK((s.time - s.lower_bound) / s.lower_bound < row.gap);
  }
}

TEST_CASE("infeasible is said with the operation that stands in the way") {
  const problem p = bundled("fno2d-b32-256");
  const solution s = refined(p.with_budget(p.graph().baseline_peak / 2));
  CHECK(s.status == solve_status::infeasible);
  CHECK(s.obstacle.has_value());
  CHECK(s.message.find("needs") != std::string::npos);
  CHECK(s.lower_bound == std::numeric_limits<double>::infinity());
}

TEST_CASE("the seed decides under a work limit, whatever the threads") {
  const problem p = bundled("unet5-b16-256").with_budget(bundled("unet5-b16-256").graph().baseline_peak / 2);
  const auto with = [&](unsigned threads, std::uint64_t seed) {
    return refined(p, {.run = {.work_limit = 320'000, .seed = seed, .threads = threads}}).plan;
  };
  CHECK(with(1, 1) == with(2, 1));
  CHECK(with(1, 1) == with(4, 1));
}

TEST_CASE("a stop before the start, and a spent deadline") {
  const problem p = bundled("unet5-b16-256").with_budget(bundled("unet5-b16-256").graph().baseline_peak / 2);
  std::stop_source source;
  source.request_stop();
  CHECK(refined(p, {.run = {.stop = source.get_token()}}).status == solve_status::cancelled);
  CHECK(refined(p, {.run = {.time_limit = std::chrono::nanoseconds(0)}}).status == solve_status::timeout);
}

TEST_CASE("schedules to start from: those over the budget are ignored, illegal ones refused") {
  const problem free = bundled("fno1d-b32-8192");
  std::vector<std::uint32_t> order(free.graph().num_operations);
  for (std::uint32_t o = 0; o < order.size(); ++o) order[o] = o;
  refined_options options;
  options.run.work_limit = 1600;
  options.starts = {schedule_computes(free, order)};
  const problem p = free.with_budget(free.graph().baseline_peak / 2);
  const solution s = refined(p, options);
  CHECK(s.has_schedule());
  CHECK(s.peak_bytes <= p.budget());
  options.starts[0].steps.pop_back();
  options.starts[0].free(tensor_id{0});
  CHECK_THROWS_AS((void)refined(p, options), bad_argument);
}
