// SPDX-License-Identifier: BSL-1.0
#include "remat/method/exact.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <limits>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "remat/bound/detail/moment_chain.hpp"
#include "remat/bound/least_memory.hpp"
#include "remat/bound/turnaround.hpp"
#include "remat/core/error.hpp"
#include "remat/cost/models.hpp"
#include "remat/graph/training_graph.hpp"
#include "remat/io/json.hpp"
#include "remat/method/evict.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "remat/solver/accept.hpp"
#include "remat/solver/solution.hpp"
#include "support/exhaustive.hpp"
#include "support/long_run.hpp"
#include "support/processor_time.hpp"
#include "support/random_graph.hpp"
#include "support/spare_memory.hpp"

namespace {

using namespace remat;  // NOLINT: a test

static_assert(solver_for<exact_solver, problem>);

constexpr double infinite = std::numeric_limits<double>::infinity();

problem bundled(const std::string& name) {
  return read_training_step(std::filesystem::path(REMAT_TEST_DATA) / "graphs" / (name + ".json")).instance;
}

/// The optimum, or the proof that there is none.
void check_proven(const problem& p, const solution& s, double least) {
  REQUIRE(s.lower_bound <= least);
  if (least == infinite) {
    REQUIRE(s.status == solve_status::infeasible);
    REQUIRE_FALSE(s.has_schedule());
    REQUIRE(s.lower_bound == infinite);
    return;
  }
  REQUIRE(s.status == solve_status::optimal);
  REQUIRE(s.time == least);
  REQUIRE(s.lower_bound >= least * (1 - 1e-12));  // times are summed in another order
  REQUIRE(check(p, *s.plan).valid());
}

}  // namespace

TEST_CASE("random graphs: the same least time as an exhaustive search over all schedules") {
  const std::uint64_t graphs = test::num_cases(750, 20'000);
  std::size_t possible = 0, impossible = 0, costly = 0;
  const auto compare = [&](std::uint64_t seed) {
    const problem free = test::random_problem(seed + 90000, test::kind_of_graph(seed));
    if (free.graph().num_operations + free.graph().outputs.values.size() > 64) return;
    for (const int percent : {100, 60, 30, 0}) {
      const problem p = test::with_spare_memory(free, percent, 100);
      const double least = test::least_time(p);
      INFO("seed ", seed, " at ", percent, " %, optimum ", least);
      check_proven(p, exact(p, {.start_from_heuristic = seed % 2 == 0}), least);
      (least < infinite ? possible : impossible) += 1;
      costly += least < infinite && least > p.graph().needed_time;
    }
  };
  for (std::uint64_t seed = 0; seed < graphs; ++seed) compare(seed);
  compare(7721);  // a cut must not ask for a tensor to which some contributions come later
  MESSAGE(possible, " with a schedule, ", costly, " of them with recomputation, ", impossible, " without");
  CHECK(costly > graphs / 10);
  CHECK(impossible > graphs / 10);
}

TEST_CASE("a problem with a link is refused") {
  CHECK_THROWS_AS((void)exact(test::random_problem(1).with_link({.out = 1, .in = 1, .latency = 0})), bad_argument);
}

TEST_CASE("only faster schedules than asked for: found, or proven that there are none") {
  std::size_t found = 0, refuted = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    const problem free = test::random_problem(seed + 80000, test::kind_of_graph(seed));
    if (free.graph().num_operations + free.graph().outputs.values.size() > 64) continue;
    const problem p = test::with_spare_memory(free, 40, 100);
    const double least = test::least_time(p);
    if (least == infinite) continue;
    INFO("seed ", seed, ", optimum ", least);
    const solution above = detail::search_exactly(p, {}, {.faster_than = least + 1});
    REQUIRE(above.status == solve_status::optimal);
    REQUIRE(above.time == least);
    const solution at = detail::search_exactly(p, {.start_from_heuristic = false}, {.faster_than = least});
    REQUIRE(at.status != solve_status::infeasible);
    REQUIRE(at.lower_bound <= least);
    REQUIRE(at.lower_bound >= least * (1 - 1e-12));
    ++found;
    refuted += !at.has_schedule();
  }
  CHECK(found > 400);
  CHECK(refuted > 30);
}

TEST_CASE("a chain of moments raises the bounds of states, and is valid for each of them") {
  const problem free = bundled("fno2d-b32-256");
  const problem p = free.with_budget(free.graph().baseline_peak / 5 * 3);
  turnaround_options linking;
  linking.branch_nodes = 200;
  linking.chain_moments = 48;
  const turnaround_result linked = turnaround_bound(p, linking);
  REQUIRE(linked.links != nullptr);
  const exact_options searching{.max_states = 20000, .start_from_heuristic = false};
  const solution better = detail::search_exactly(p, searching, {.chain = linked.links});
  const auto none = std::make_shared<const detail::moment_chain>();
  const solution plain = detail::search_exactly(p, searching, {.chain = none});
  CHECK(better.lower_bound > 1.01 * plain.lower_bound);
  CHECK(better.lower_bound < 1.2608 * p.graph().needed_time);  // there is a schedule of 26.08 % overhead
}

TEST_CASE("real graphs: optimal, or proven to have no schedule") {
  const struct {
    const char* name;
    double fraction;
    double overhead;  // of the optimum; infinite: none
  } rows[] = {{"fno1d-b32-8192", 0.8, 0.047613},
              {"mlp-chain-8", 1.0, 0},
              {"mlp-chain-8", 0.98, infinite},
              {"toy-skip-3", 1.0, 0},
              {"toy-skip-3", 0.98, infinite}};
  for (const auto& row : rows) {
    INFO(row.name, " at ", row.fraction);
    const problem free = bundled(row.name);
    const problem p =
        free.with_budget(static_cast<std::int64_t>(row.fraction * static_cast<double>(free.graph().baseline_peak)));
    const solution s = exact(p);
    if (row.overhead == infinite) {
      CHECK(s.status == solve_status::infeasible);
      continue;
    }
    CHECK(s.status == solve_status::optimal);
    CHECK(s.time / p.graph().needed_time - 1 == doctest::Approx(row.overhead).epsilon(1e-4));
    CHECK(s.peak_bytes <= p.budget());
    CHECK(s.lower_bound <= s.time);
    CHECK(is_optimal(s.time, s.lower_bound));
  }
}

TEST_CASE("limits: whatever ends the search, the bound is below the optimum and the schedule above it") {
  std::size_t stopped = 0, between = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const problem free = test::random_problem(seed + 70000, {.operations = 8, .once = 0, .backward = 100});
    if (free.graph().num_operations + free.graph().outputs.values.size() > 64) continue;
    const problem p = free.with_budget(free.graph().baseline_peak * 6 / 10);
    const double least = test::least_time(p);
    for (const std::uint64_t states : {1U, 4U, 10U, 25U}) {
      INFO("seed ", seed, ", ", states, " states");
      const solution s = exact(p, {.max_states = states, .start_from_heuristic = states != 4});
      REQUIRE(s.lower_bound <= least);
      if (s.plan) {
        REQUIRE(check(p, *s.plan).valid());
        REQUIRE(s.time >= least);
        if (s.status == solve_status::optimal)
          REQUIRE(s.time == least);
        else
          REQUIRE(s.status == solve_status::feasible);
      } else if (s.status == solve_status::infeasible) {
        REQUIRE(least == infinite);
      } else {
        REQUIRE(s.status == solve_status::timeout);
      }
      stopped += s.status == solve_status::timeout || s.status == solve_status::feasible;
      between += s.lower_bound > p.graph().needed_time && s.lower_bound < least;
    }
  }
  CHECK(stopped > 40);
  CHECK(between > 30);
}

TEST_CASE("a search that is stopped has a bound of its own") {
  const problem free = bundled("fno1d-b32-8192");
  const problem p = free.with_budget(free.graph().baseline_peak / 2);
  solution turnaround;
  prove(p, turnaround);
  const solution s = exact(p, {.max_states = 20000});
  CHECK(s.status == solve_status::feasible);
  CHECK(s.lower_bound > turnaround.lower_bound);
  CHECK(s.lower_bound < s.time);
}

TEST_CASE("impatience ends a search that closes little of the gap, and no other") {
  const problem vgg16 = bundled("vgg16-b64-224"), fno1d = bundled("fno1d-b32-8192");
  const problem slow = vgg16.with_budget(vgg16.graph().baseline_peak / 5 * 2);
  const std::uint64_t states = test::num_cases(200'000, 300'000);
  const solution early = detail::search_exactly(slow, {.max_states = states}, {.patience = 0.1});
  const solution late = exact(slow, {.max_states = states});
  CHECK(early.statistics.work < late.statistics.work * 3 / 4);
  CHECK(early.lower_bound <= late.lower_bound);
  CHECK(early.lower_bound > slow.graph().needed_time);
  const problem quick = fno1d.with_budget(fno1d.graph().baseline_peak / 5 * 3);
  const solution proven = detail::search_exactly(quick, {}, {.patience = 0.1});
  CHECK(proven.status == solve_status::optimal);
}

TEST_CASE("a stop before the start, a deadline, a work limit, a stop on the way") {
  const problem free = bundled("rk/unet");
  const problem p = free.with_budget(free.graph().baseline_peak / 2);
  std::stop_source source;
  CHECK(exact(p, {.run = {.time_limit = std::chrono::nanoseconds(0)}}).status == solve_status::timeout);
  CHECK(exact(p, {.run = {.work_limit = 0}}).status == solve_status::timeout);
  run_control run;
  run.stop = source.get_token();
  double last = 0;
  run.on_progress = [&](const progress& news) {
    CHECK(news.solver == "exact");
    CHECK(news.lower_bound >= last);
    last = news.lower_bound;
    source.request_stop();
  };
  const solution cancelled = exact(p, {.start_from_heuristic = false, .run = run});
  CHECK(cancelled.status == solve_status::cancelled);
  CHECK(cancelled.lower_bound > p.graph().needed_time);
  CHECK(exact(p, {.run = run}).status == solve_status::cancelled);
  const double start = test::processor_seconds();
  const solution late = exact(p, {.run = {.time_limit = std::chrono::milliseconds(200)}});
  CHECK(late.status == solve_status::feasible);
  CHECK(test::processor_seconds() - start < 2);
}

TEST_CASE("the same answer every time") {
  const problem free = bundled("rk/unet");
  const problem p = free.with_budget(free.graph().baseline_peak / 2);
  const exact_options options{.max_states = 3000, .run = {.work_limit = 24'000}};
  const solution a = exact(p, options), b = exact(p, options);
  CHECK(a.plan == b.plan);
  CHECK(a.lower_bound == b.lower_bound);
  CHECK(a.statistics.work == b.statistics.work);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const problem q = test::random_problem(seed + 95000, {.operations = 8});
    const problem r = q.with_budget(q.graph().baseline_peak * 7 / 10);
    CHECK(exact(r, {.start_from_heuristic = false}).plan == exact(r, {.start_from_heuristic = false}).plan);
  }
}

TEST_CASE("a stop ends the search of a large graph, the work is bounded, and options out of range are refused") {
  const problem free = test::random_problem(5, {.operations = 1900, .once = 0, .dead = 0, .backward = 100});
  const problem p = free.with_budget((largest_working_set(free).bytes + free.graph().baseline_peak) / 2);
  std::stop_source source;
  std::clock_t stopped = 0;
  {
    std::jthread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      stopped = std::clock();
      source.request_stop();
    });
    (void)exact(p, {.start_from_heuristic = false, .run = {.stop = source.get_token()}});
  }
  CHECK(static_cast<double>(std::clock() - stopped) / CLOCKS_PER_SEC < 0.1);
  const std::clock_t begin = std::clock();
  (void)exact(p, {.run = {.time_limit = std::chrono::milliseconds(100)}});
  CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 0.3);
  const problem unet = bundled("rk/unet");
  const std::uint64_t one_state = unet.graph().num_operations;
  CHECK(exact(unet.with_budget(unet.graph().baseline_peak / 2), {.run = {.work_limit = 4800}}).statistics.work <=
        4800 + one_state);
  CHECK_THROWS_AS((void)exact(p, {.max_states = 0}), bad_argument);
  CHECK_THROWS_AS((void)exact(p, {.max_states = std::uint64_t{1} << 32}), bad_argument);
}

TEST_CASE("nothing to do, and no budget") {
  const problem nothing(training_graph{}, measured_cost{});
  const solution none = exact(nothing.with_budget(0));
  CHECK(none.status == solve_status::optimal);
  CHECK(none.time == 0);
  const problem free = bundled("mlp-chain-8");
  const solution s = exact(free);
  CHECK(s.status == solve_status::optimal);
  CHECK(s.time == doctest::Approx(free.graph().needed_time).epsilon(1e-12));
}

TEST_CASE("a bound that is known before makes the search no longer") {
  const problem p(read_training_graph(std::filesystem::path(REMAT_TEST_DATA "/tight/unet-39.json")), flops_cost{},
                  827'850'863);
  const solution alone = exact(p), told = exact(p.with_known_bound(1128));
  REQUIRE(alone.status == solve_status::optimal);
  CHECK(told.status == solve_status::optimal);
  CHECK(told.time == alone.time);
  CHECK(told.statistics.work <= alone.statistics.work + alone.statistics.work / 20);
}
