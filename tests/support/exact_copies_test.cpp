// SPDX-License-Identifier: BSL-1.0
#include "support/exact_copies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <limits>
#include <stop_token>

#include "remat/bound/least_memory.hpp"
#include "remat/method/exact.hpp"
#include "remat/problem/problem.hpp"
#include "remat/schedule/check.hpp"
#include "support/exhaustive.hpp"
#include "support/exhaustive_copies.hpp"
#include "support/long_run.hpp"
#include "support/random_graph.hpp"
#include "support/spare_memory.hpp"

namespace {

using namespace remat;  // NOLINT: a test

constexpr double infinite = std::numeric_limits<double>::infinity();

/// A link from slow to fast, in bytes per unit of time of the random graphs.
host_link random_link(std::uint64_t seed) {
  constexpr double speeds[] = {0.3, 1, 3, 10, 1000};
  return {.out = speeds[seed % 5], .in = speeds[seed / 5 % 5], .latency = static_cast<double>(seed % 3) * 0.5};
}

}  // namespace

TEST_CASE("the same least time as an exhaustive search over schedules with copies") {
  const std::uint64_t graphs = test::num_cases(700, 4000);
  std::size_t possible = 0, impossible = 0, copied = 0, limited = 0;
  const auto compare = [&](std::uint64_t seed, std::size_t labels) {
    test::random_graph_options kind = test::kind_of_graph(seed);
    kind.operations = std::min(kind.operations, 6U);
    const problem free = test::random_problem(seed + 120000, kind);
    const flat_graph& g = free.graph();
    if (g.num_operations + g.outputs.values.size() + 2 * std::size_t{g.num_tensors} > 60) return;
    for (const int percent : {0, 25, 60}) {
      const std::int64_t host = seed % 3 == 1 ? static_cast<std::int64_t>(seed % 4 + seed / 7 % 9) : problem::unlimited;
      const problem p = test::with_spare_memory(free, percent, 100)
                            .with_link(random_link(seed + static_cast<std::uint64_t>(percent)), host);
      const test::fastest_result truth = test::fastest_with_copies(p, labels);
      if (!truth.complete) continue;
      INFO("seed ", seed, " at ", percent, " %, optimum ", truth.time);
      const solution s = test::exact_with_copies(p);
      REQUIRE(s.lower_bound <= truth.time * (1 + 1e-12));
      if (truth.time == infinite) {
        REQUIRE(s.status == solve_status::infeasible);
        ++impossible;
        continue;
      }
      REQUIRE(s.status == solve_status::optimal);
      REQUIRE(s.time == doctest::Approx(truth.time).epsilon(1e-12));
      REQUIRE(check(p, *s.plan).valid());
      ++possible;
      copied += s.host_peak_bytes > 0;
      limited += s.host_peak_bytes > 0 && host != problem::unlimited;
    }
  };
  for (std::uint64_t seed = 0; seed < graphs; ++seed) compare(seed, test::long_run() ? 300'000 : 4'000);
  compare(52, 60'000);    // a tensor of no bytes, to which a further run would add twice
  compare(512, 60'000);   // a label that may not copy a tensor back any more dominates no other one
  compare(1382, 60'000);  // the same
  MESSAGE(possible, " with a schedule, ", copied, " of them with copies, ", limited, " of these with a limited host, ",
          impossible, " without");
  CHECK(copied > graphs / 10);
  CHECK(limited > 10);
  CHECK(impossible > 10);
}

TEST_CASE("copies decide where no operation takes time, however fast they are") {
  for (const bool swapped : {false, true})
    for (const double speed : {1e3, 1e15, 1e17, 1e18}) {
      flat_graph g;
      g.num_operations = g.num_tensors = 5;
      g.outputs.values = {0, 1, 2, 3, 4};
      g.outputs.begin = {0, 1, 2, 3, 4, 5};
      g.inputs.values = {0, 1, 2, 0, 1, 3};
      g.inputs.begin = {0, 0, 0, 2, 3, 6};
      g.final_outputs = {4};
      g.bytes = {swapped ? 10 : 20, swapped ? 20 : 10, 30, 1, 1};
      g.time = {0, 0, 0, 0, 0};
      g.workspace = {0, 0, 0, 10, 0};
      g.once = {1, 1, 0, 0, 0};
      const problem p = problem::from_flat(g, 61).with_link({.out = speed, .in = speed, .latency = 0});
      const solution s = test::exact_with_copies(p);
      CHECK(s.status == solve_status::optimal);
      CHECK(s.time == doctest::Approx(20 / speed).epsilon(1e-12));
    }
}

TEST_CASE("a link that is of no use: the optimum of recomputation alone") {
  std::size_t costly = 0;
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    const problem free = test::random_problem(seed + 130000, {.operations = 7, .once = 0, .backward = 100});
    const problem alone = test::with_spare_memory(free, 40, 100);
    const solution truth = exact(alone);
    INFO("seed ", seed, ", optimum ", truth.time);
    const solution no_room = test::exact_with_copies(alone.with_link({.out = 1e9, .in = 1e9, .latency = 0}, 0));
    const solution slow = test::exact_with_copies(alone.with_link({.out = 1e-3, .in = 1e-3, .latency = 0}));
    if (!truth.plan) continue;
    REQUIRE(slow.status == solve_status::optimal);
    REQUIRE(slow.time == truth.time);
    REQUIRE(no_room.status == solve_status::optimal);
    REQUIRE(no_room.time <= truth.time);  // tensors of no bytes have room on the host
    costly += truth.time > free.graph().needed_time;
  }
  CHECK(costly > 30);
}

TEST_CASE("limits: the bound is below the optimum, and the answer is repeatable") {
  std::size_t stopped = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const problem free = test::random_problem(seed + 140000, {.operations = 9, .once = 0, .backward = 100});
    const problem p = test::with_spare_memory(free, 30, 100)
                          .with_link({.out = 1, .in = 2, .latency = 0.25}, seed % 4 == 0 ? 8 : problem::unlimited);
    const solution truth = test::exact_with_copies(p);
    const double least = truth.plan ? truth.time : infinite;
    INFO("seed ", seed, ", optimum ", least);
    REQUIRE((truth.status == solve_status::optimal || truth.status == solve_status::infeasible));
    for (const std::uint64_t states : {1U, 30U, 300U}) {
      const test::copying_options options{.max_states = states, .run = {.work_limit = 20'000}};
      const solution s = test::exact_with_copies(p, options), again = test::exact_with_copies(p, options);
      REQUIRE(s.lower_bound <= least * (1 + 1e-12));
      REQUIRE(s.plan == again.plan);
      REQUIRE(s.lower_bound == again.lower_bound);
      REQUIRE(s.statistics.work == again.statistics.work);
      if (s.plan) REQUIRE(s.time >= least * (1 - 1e-12));
      stopped += s.status == solve_status::timeout;
    }
    const solution none = test::exact_with_copies(p, {.faster_than = least});
    REQUIRE(none.lower_bound <= least * (1 + 1e-12));
    REQUIRE(none.lower_bound >= least * (1 - 1e-9));
  }
  CHECK(stopped > 5);
  const problem large = test::random_problem(5, {.operations = 1900, .once = 0, .dead = 0, .backward = 100});
  const problem p = large.with_budget((largest_working_set(large).bytes + large.graph().baseline_peak) / 2)
                        .with_link({.out = 1, .in = 1, .latency = 0});
  CHECK(test::exact_with_copies(p, {.run = {.time_limit = std::chrono::nanoseconds(0)}}).status ==
        solve_status::timeout);
  std::stop_source source;
  source.request_stop();
  CHECK(test::exact_with_copies(p, {.run = {.stop = source.get_token()}}).status == solve_status::cancelled);
  const std::clock_t begin = std::clock();
  (void)test::exact_with_copies(p, {.run = {.time_limit = std::chrono::milliseconds(300)}});
  CHECK(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC < 0.9);
}
