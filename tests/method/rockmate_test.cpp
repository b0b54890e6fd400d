// SPDX-License-Identifier: BSL-1.0
#include "remat/method/rockmate.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "remat/hierarchy/detail/way_cache.hpp"
#include "remat/io/json.hpp"
#include "remat/method/refined.hpp"
#include "remat/solver/solution.hpp"
#include "support/answer.hpp"
#include "support/csv.hpp"
#include "support/exhaustive.hpp"
#include "support/long_run.hpp"
#include "support/processor_time.hpp"
#include "support/random_graph.hpp"

namespace {

using remat::problem;
using remat::solution;
using remat::solve_status;

static_assert(remat::solver_for<remat::rockmate_solver, problem>);

remat::rockmate_options quick() {
  remat::rockmate_options options;
  options.slots = 60;
  options.moves = 30;
  options.block_effort = 3000;
  return options;
}

TEST_CASE("random graphs of every kind: valid within the budget, and never better than the optimum") {
  int solved = 0, recomputed = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    remat::test::random_graph_options kind;
    kind.operations = 1 + static_cast<std::uint32_t>(seed % 9);
    kind.accumulate = seed % 2 == 0 ? 40 : 10;
    kind.once = seed % 3 == 0 ? 0 : 15;
    const problem free = remat::test::random_problem(seed, kind);
    for (const int percent : {95, 80, 60}) {
      CAPTURE(percent);
      const problem p = free.with_budget(free.graph().baseline_peak * percent / 100);
      const double optimum = remat::test::least_time(p);
      const solution s = remat::rockmate(p, quick());
      remat::test::check_answer(p, s);
      CHECK(s.time >= optimum);
      if (s.status == solve_status::infeasible) CHECK(std::isinf(optimum));
      solved += s.has_schedule();
      recomputed += s.statistics.recomputes > 0;
    }
  }
  CHECK(solved > 40);
  CHECK(recomputed > 5);
}

TEST_CASE("larger random graphs: valid, and before memory is spent never worse for the options") {
  int better = 0;
  for (std::uint64_t seed = 0; seed < remat::test::num_cases(5, 12); ++seed) {
    CAPTURE(seed);
    remat::test::random_graph_options kind;
    kind.operations = 20 + static_cast<std::uint32_t>(seed);
    kind.backward = 100;
    kind.once = seed % 2 == 0 ? 0 : 10;
    const problem free = remat::test::random_problem(seed, kind);
    for (const int percent : {80, 55}) {
      const problem p = free.with_budget(free.graph().baseline_peak * percent / 100);
      remat::rockmate_options options = quick();
      options.retain_rounds = 3;
      remat::test::check_answer(p, remat::rockmate(p, options));
      options.retain_rounds = 0;
      const solution with = remat::rockmate(p, options);
      options.max_block = 0;
      const solution without = remat::rockmate(p, options);
      remat::test::check_answer(p, with);
      better += with.time < without.time;
      if (std::isfinite(without.time)) CHECK(with.has_schedule());
    }
  }
  CHECK(better > 1);
}

TEST_CASE("options pay: the same chains without them are slower") {
  const problem free = remat::read_training_step(REMAT_TEST_DATA "/graphs/rk/mixer.json").instance;
  for (const int percent : {60, 40}) {
    const problem p = free.with_budget(free.graph().baseline_peak / 100 * percent);
    remat::rockmate_options options;
    options.block_effort = 6000;
    const solution with = remat::rockmate(p, options);
    options.max_block = 0;
    const solution without = remat::rockmate(p, options);
    const double needed = p.graph().needed_time;
    CHECK(with.time - needed < 0.6 * (without.time - needed));
    CHECK(with.message.find("distinct among") != std::string::npos);
  }
}

TEST_CASE("any number of threads, and a cache that knows all blocks: the same answer") {
  const problem free = remat::read_training_step(REMAT_TEST_DATA "/graphs/rk/fno1d.json").instance;
  const problem p = free.with_budget(free.graph().baseline_peak / 2);
  remat::rockmate_options options = quick();
  const solution one = remat::rockmate(p, options);
  REQUIRE(one.has_schedule());
  options.run.threads = 3;
  CHECK(remat::rockmate(p, options).plan == one.plan);
  options.cache = remat::make_way_cache();
  CHECK(remat::rockmate(p, options).plan == one.plan);
  const std::size_t known = options.cache->size();
  CHECK(known > 0);
  CHECK(remat::rockmate(p, options).plan == one.plan);
  CHECK(options.cache->size() == known);
  options.run.work_limit = 64'000;
  const solution some = remat::rockmate(p, options);
  options.run.threads = 1;
  CHECK(remat::rockmate(p, options).plan == some.plan);
}

TEST_CASE("limits: stop, work, wall clock; bad options") {
  const problem free = remat::read_training_step(REMAT_TEST_DATA "/graphs/rk/resnet50.json").instance;
  const problem p = free.with_budget(free.graph().baseline_peak / 2);
  remat::rockmate_options options;
  std::stop_source source;
  source.request_stop();
  options.run.stop = source.get_token();
  CHECK(remat::rockmate(p, options).status == solve_status::cancelled);
  options.run = {};
  options.run.work_limit = 0;
  CHECK(remat::rockmate(p, options).status == solve_status::timeout);
  options.run = {};
  options.run.time_limit = std::chrono::milliseconds(100);
  std::uint64_t calls = 0;
  options.run.on_progress = [&](const remat::progress& news) {
    ++calls;
    CHECK(news.solver == "rockmate");
    CHECK(news.done <= news.total);
  };
  const double start = remat::test::processor_seconds();
  remat::test::check_answer(p, remat::rockmate(p, options));
  CHECK(remat::test::processor_seconds() - start < 3);
  CHECK(calls > 0);
  options = {};
  options.slots = 0;
  CHECK_THROWS_AS((void)remat::rockmate(p, options), remat::bad_argument);
  options = {};
  options.ways_per_stage = 1;
  CHECK_THROWS_AS((void)remat::rockmate(p, options), remat::bad_argument);
}

TEST_CASE("no slower than Rockmate's own plans that keep their budget, before memory is spent and after") {
  const auto rows = remat::test::read_csv(REMAT_TEST_DATA "/peers/rockmate.csv");
  const bool all = remat::test::long_run();
  int compared = 0;
  std::string last;
  std::shared_ptr<remat::way_cache> cache;
  for (const auto& row : rows) {
    if (row[1] != "rockmate-highs" || row.size() < 7 || row[5] != "1") continue;
    if (!all && row[0] != "fno1d" && row[0] != "mixer") continue;
    CAPTURE(row[0]);
    CAPTURE(row[2]);
    if (row[0] != last) cache = remat::make_way_cache();
    last = row[0];
    const problem p = remat::read_training_step(REMAT_TEST_DATA "/graphs/rk/" + row[0] + ".json")
                          .instance.with_budget(std::stoll(row[3]));
    remat::rockmate_options options;
    options.cache = cache;
    if (!all) options.block_effort = 12'000;
    for (const std::uint32_t rounds : {0U, 3U}) {
      options.retain_rounds = rounds;
      const solution s = remat::rockmate(p, options);
      remat::test::check_answer(p, s);
      CHECK(s.time <= std::stod(row[6]) * p.graph().needed_time * (1 + 5e-6));  // five digits are printed
    }
    ++compared;
  }
  CHECK(compared == (all ? 17 : 7));
}

TEST_CASE("by itself only the tables' schedules; to improve, memory is spent and refinement follows") {
  const problem free = remat::read_training_step(REMAT_TEST_DATA "/graphs/rk/mixer.json").instance;
  const problem p = free.with_budget(free.graph().baseline_peak / 100 * 40);
  remat::rockmate_options options;
  options.block_effort = 6000;
  const solution own = remat::rockmate(p, options);
  REQUIRE(own.has_schedule());
  CHECK(own.by == "rockmate");
  const remat::figures& figures = own.statistics.own;
  CHECK(*figures.find<double>("flat_time") == own.time);
  CHECK(*figures.find<bool>("with_ways"));
  CHECK(*figures.find<std::int64_t>("chains_with_ways") > 0);
  CHECK(*figures.find<std::int64_t>("chains_refused") > 0);
  CHECK(*figures.find<std::int64_t>("tables_refused") == 0);
  CHECK(*figures.find<std::int64_t>("ways_kept") <= *figures.find<std::int64_t>("ways_found"));
  CHECK(*figures.find<std::int64_t>("stage_ways") > *figures.find<std::int64_t>("stages"));
  options.improve = remat::by_refinement;
  options.run.work_limit = 960'000;
  const solution better = remat::rockmate(p, options);
  CHECK(better.by.rfind("rockmate/refined/", 0) == 0);
  CHECK(better.time < own.time);
  CHECK(better.statistics.own.find<double>("own_time") != nullptr);

  options = {};
  options.max_stages = 20;
  options.block_effort = 0;
  options.table_bytes = 1000;
  const solution refused = remat::rockmate(p, options);
  CHECK(*refused.statistics.own.find<std::int64_t>("chains_refused") > 0);
  CHECK(*refused.statistics.own.find<std::int64_t>("tables_refused") > 0);
}

}  // namespace
