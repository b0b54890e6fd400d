// SPDX-License-Identifier: BSL-1.0
#include "remat/method/offload.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "remat/bound/least_memory.hpp"
#include "remat/core/error.hpp"
#include "remat/method/automatic.hpp"
#include "remat/method/detail/evict_with_copies.hpp"
#include "remat/method/hiremate.hpp"
#include "remat/method/refined.hpp"
#include "remat/method/rockmate.hpp"
#include "remat/mip/branch_and_bound.hpp"
#include "remat/schedule/check.hpp"
#include "support/data.hpp"
#include "support/exhaustive_copies.hpp"
#include "support/half_elsewhere.hpp"
#include "support/large_steps.hpp"
#include "support/long_run.hpp"
#include "support/random_graph.hpp"

using namespace remat;

namespace {

offload_options with_work(std::uint64_t units, unsigned threads = 1) {
  offload_options options;
  options.run.work_limit = units;
  options.run.threads = threads;
  return options;
}

/// A solver that copies, with its options but for `run`.
struct copying_solver {
  std::string name;
  std::function<solution(const problem&, const run_control&)> solve;
};
template <class Solver>
copying_solver by(const Solver& solver, typename Solver::options_type options = {}) {
  return {std::string(Solver::name), [&solver, options](const problem& p, const run_control& run) {
            typename Solver::options_type now = options;
            now.run = run;
            return solver(p, now);
          }};
}
constexpr auto hiremate_own = hiremate_with(branch_and_bound);
const std::vector<copying_solver> copying_solvers{by(offload), by(evict_with_copies), by(refined), by(rockmate),
                                                  by(hiremate_own)};

/// A link from slow to fast, in bytes per unit of time of the random graphs.
host_link random_link(std::uint64_t seed) {
  static constexpr double speeds[] = {0.3, 1, 3, 10, 1000};
  return {.out = speeds[seed % 5], .in = speeds[seed / 5 % 5], .latency = seed % 3 == 0 ? 0.5 : 0.0};
}

}  // namespace

TEST_CASE("on small graphs, no schedule is faster than the optimum, and most are as fast") {
  struct counts {
    std::size_t solved = 0, optimal = 0, with_copies = 0;
  };
  std::map<std::string, counts> of_solver;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const problem whole = test::random_problem(seed, {.operations = 3 + static_cast<std::uint32_t>(seed % 4)});
    for (const double part : {0.9, 0.75}) {
      const problem p = test::within(whole, part).with_link(random_link(seed), seed % 4 == 0 ? 6 : problem::unlimited);
      CAPTURE(seed);
      CAPTURE(part);
      const test::fastest_result best = test::fastest_with_copies(p);
      for (const copying_solver& solver : copying_solvers) {
        CAPTURE(solver.name);
        if (seed % 2 != 0 && solver.name != "offload") continue;  // to save time
        const solution s = solver.solve(p, with_work(solver.name == "offload" ? 10'000 : 4'000).run);
        if (s.status == solve_status::infeasible) CHECK((!best.complete || !std::isfinite(best.time)));
        if (!s.plan || !best.complete) continue;
        const check_report r = check(p, *s.plan);
        CHECK(r.valid());
        CHECK(r.time == s.time);
        CHECK(r.host_peak_bytes == s.host_peak_bytes);
        CHECK(s.time >= best.time * (1 - 1e-9));
        CHECK(s.lower_bound <= best.time * (1 + 1e-9));
        if (s.status == solve_status::optimal) CHECK(s.time <= best.time * (1 + 1e-9));
        CHECK(s.by.rfind(solver.name, 0) == 0);
        counts& c = of_solver[solver.name];
        ++c.solved;
        c.optimal += s.time <= best.time * (1 + 1e-9);
        c.with_copies += s.plan->has_copies();
      }
    }
  }
  for (const copying_solver& solver : copying_solvers) {
    const counts& c = of_solver[solver.name];
    MESSAGE(solver.name, ": ", c.solved, " solved, ", c.optimal, " optimal, ", c.with_copies, " with copies");
    CHECK(c.solved > 20);
    CHECK(c.with_copies > 4);
    CHECK(10 * c.optimal > (solver.name == "rockmate" ? 6 : 8) * c.solved);  // it has chains alone
  }
}

TEST_CASE("it is never slower than recomputation alone by eviction, and faster with a fast link") {
  for (std::uint64_t seed = 0; seed < test::num_cases(25, 60); ++seed) {
    const problem whole = test::random_problem(seed, {.operations = 10 + static_cast<std::uint32_t>(seed % 40)});
    for (const double part : {0.8, 0.6}) {
      const problem alone = test::within(whole, part);
      CAPTURE(seed);
      CAPTURE(part);
      const solution recomputed = evict(alone, {.run = with_work(2000).run});  // as much as `offload` leaves it
      for (const double speed : {0.5, 5.0, 1e6}) {
        const problem p = alone.with_link({.out = speed, .in = speed, .latency = 0});
        const solution s = offload(p, with_work(50'000));
        if (s.plan) CHECK(check(p, *s.plan).valid());
        if (!recomputed.plan) continue;
        REQUIRE(s.plan);
        CHECK(s.time <= recomputed.time * (1 + 1e-12));
        CHECK(s.time >= s.lower_bound * (1 - 1e-9));
      }
    }
  }
}

TEST_CASE("eviction with a link is never slower than without it") {
  std::size_t faster = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const problem whole = test::random_problem(seed, {.operations = 10 + static_cast<std::uint32_t>(seed % 30)});
    const problem alone = test::within(whole, 0.7);
    CAPTURE(seed);
    const solution recomputed = evict(alone, {.insist = false});
    if (!recomputed.plan) continue;
    for (const double speed : {0.5, 5.0, 1e6}) {
      const problem p =
          alone.with_link({.out = speed, .in = speed, .latency = 0}, seed % 2 == 0 ? 20 : problem::unlimited);
      const solution s = evict_with_copies(p);
      REQUIRE(s.plan);
      CHECK(check(p, *s.plan).valid());
      CHECK(s.time <= recomputed.time * (1 + 1e-12));
      CHECK(s.time >= s.lower_bound * (1 - 1e-9));
      faster += s.time < recomputed.time * (1 - 1e-9);
    }
  }
  CHECK(faster > 10);
}

TEST_CASE("both budgets hold on real steps, and copies remove recomputation") {
  for (const char* name : {"unet5-b16-256", "gpt2-small-b8-s1024"}) {
    const problem whole = test::bundled_problem(name);
    const problem alone = test::within(whole, 0.6);
    const solution recomputed = refined(alone, [] {
      refined_options options;
      options.run.work_limit = 200'000;
      return options;
    }());
    CAPTURE(name);
    REQUIRE(recomputed.plan);
    double before = recomputed.time;
    for (const double speed : {12e9, 64e9}) {
      const problem p = alone.with_link({.out = speed, .in = speed});
      const solution s = offload(p, with_work(300'000));
      CAPTURE(speed);
      REQUIRE(s.plan);
      CHECK(check(p, *s.plan).valid());
      CHECK(s.time < before);
      before = std::min(before, s.time);
      // Half of the host's bytes: still legal, if there is a schedule.
      const problem less = alone.with_link({.out = speed, .in = speed}, s.host_peak_bytes / 2);
      const solution t = offload(less, with_work(300'000));
      REQUIRE(t.plan);
      CHECK(check(less, *t.plan).valid());
      CHECK(t.host_peak_bytes <= s.host_peak_bytes / 2);
    }
  }
}

TEST_CASE("for a seed and a work limit the answer does not depend on threads or a crew") {
  const problem p = test::within(test::bundled_problem("unet5-b16-256"), 0.5).with_link({});
  const solution one = offload(p, with_work(300'000, 1)), two = offload(p, with_work(300'000, 2));
  REQUIRE(one.plan);
  CHECK(one.plan == two.plan);
  CHECK(one.lower_bound == two.lower_bound);

  std::size_t sent = 0;
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const problem q =
        test::within(test::random_problem(seed, {.operations = 60}), 0.6).with_link({.out = 1, .in = 1, .latency = 0});
    offload_options options = with_work(200'000, 1);
    const solution here = offload(q, options);
    test::half_elsewhere crew(solver_pieces());
    options.run.crew = &crew;
    const solution shared = offload(q, options);
    CHECK(here.plan == shared.plan);
    CHECK(here.statistics.work == shared.statistics.work);
    sent += crew.sent["copies"];
    crew.spoil = [](byte_row& result) { result.pop_back(); };
    if (crew.sent["copies"] > 0) CHECK_THROWS_AS((void)offload(q, options), bad_argument);
  }
  CHECK(sent > 0);
  for (const copying_solver& solver : copying_solvers) {
    CAPTURE(solver.name);
    const solution alone = solver.solve(p, with_work(20'000, 1).run),
                   shared = solver.solve(p, with_work(20'000, 2).run);
    REQUIRE(alone.plan);
    CHECK(check(p, *alone.plan).valid());
    CHECK(alone.plan == shared.plan);
  }
}

TEST_CASE("auto uses the link, and is no slower than recomputation alone") {
  const problem alone = test::within(test::bundled_problem("unet5-b16-256"), 0.5);
  automatic_options options;
  options.run.work_limit = 300'000;
  const solution recomputed = automatic(alone, options);
  const problem p = alone.with_link({});
  const solution s = automatic(p, options);
  REQUIRE(s.plan);
  CHECK(check(p, *s.plan).valid());
  CHECK(s.time < recomputed.time);
  CHECK(s.by.rfind("auto/offload/", 0) == 0);
  const std::int64_t budgets[] = {alone.budget(), alone.budget() * 3 / 2};
  const std::vector<solution> both = frontier(p, budgets, automatic, options.run);
  REQUIRE(both.size() == 2);
  for (std::size_t i = 0; i < 2; ++i) {
    REQUIRE(both[i].plan);
    CHECK(check(p.with_budget(budgets[i]), *both[i].plan).valid());
  }
}

TEST_CASE("a budget below a working set is infeasible, with the operation") {
  const problem whole = test::random_problem(3, {.operations = 12});
  const solution s = offload(whole.with_budget(1).with_link({}));
  CHECK(s.status == solve_status::infeasible);
  CHECK(!s.message.empty());
}

TEST_CASE("copies reach budgets that recomputation alone does not, even with little work") {
  for (const char* name : {"unet5-b16-256", "vgg16-b64-224"}) {
    const problem whole = test::bundled_problem(name);
    const problem alone = whole.with_budget(largest_working_set(whole.with_link({})).bytes);
    const problem p = alone.with_link({.out = 450e9, .in = 450e9});
    CAPTURE(name);
    const solution s = offload(p, with_work(2'000));
    REQUIRE(s.plan);
    CHECK(check(p, *s.plan).valid());
    CHECK(!evict(alone, {.run = with_work(50'000).run}).plan);
  }
}

TEST_CASE("it is no slower than the schedules to begin with, and refuses illegal ones") {
  const problem alone = test::within(test::bundled_problem("unet5-b16-256"), 0.5);
  const problem p = alone.with_link({.out = 1e9, .in = 1e9});
  refined_options refining;
  refining.run.work_limit = 200'000;
  const solution recomputed = refined(alone, refining);
  REQUIRE(recomputed.plan);
  offload_options options = with_work(20'000);
  options.starts.push_back(*recomputed.plan);
  CHECK(offload(p, options).time <= recomputed.time);
  options.starts.push_back(schedule{{step::free(static_cast<tensor_id>(0))}});
  CHECK_THROWS_AS((void)offload(p, options), bad_argument);
}

TEST_CASE("stopped at any moment, it returns a legal schedule or none") {
  const problem whole = test::large_step(test::step_family::decoder, 20'000);
  const problem p = test::within(whole, 0.5).with_link({});
  for (const int ms : {1, 5, 20, 50, 100, 200, 400}) {
    offload_options options;
    options.run.time_limit = std::chrono::milliseconds(ms);
    const solution s = offload(p, options);
    if (s.plan) CHECK(check(p, *s.plan).valid());
  }
}
