// SPDX-License-Identifier: BSL-1.0
#include "remat/method/pofo.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/chain/detail/chain_program.hpp"
#include "remat/chain/detail/forward_line.hpp"
#include "remat/cost/models.hpp"
#include "remat/io/json.hpp"
#include "remat/method/pofo/impl/backlog_program.hpp"
#include "remat/method/rotor.hpp"
#include "remat/schedule/check.hpp"
#include "remat/schedule/simplify.hpp"
#include "support/data.hpp"
#include "support/exhaustive_copies.hpp"
#include "support/random_chain.hpp"
#include "support/random_graph.hpp"

using namespace remat;

namespace {

problem problem_of(const chain& c) { return problem(chain_graph(c), measured_cost{}); }
problem bundled_chain(const std::string& name) {
  return problem_of(read_chain(std::filesystem::path(REMAT_TEST_DATA) / "chains" / (name + ".json")));
}

/// A link from slow to fast, in bytes per unit of time of the random chains.
host_link random_link(std::uint64_t seed) {
  static constexpr double speeds[] = {0.5, 1, 3, 10, 1000};
  return {.out = speeds[seed % 5], .in = speeds[seed / 5 % 5], .latency = seed % 3 == 0 ? 0.5 : 0.0};
}

/// Few states, so that tests are short.
pofo_options few(unsigned threads = 1) {
  pofo_options options;
  options.slots = 100;
  options.states = 60;
  options.candidates = 4;
  options.run.threads = threads;
  return options;
}

rotor_options rotor_like(const pofo_options& options) {
  rotor_options same;
  same.slots = options.slots;
  same.max_stages = options.max_stages;
  return same;
}

void check_answer(const problem& p, const solution& s) {
  REQUIRE(s.plan);
  const check_report r = check(p, *s.plan);
  CHECK(r.valid());
  CHECK(r.time == s.time);
  CHECK(r.host_peak_bytes == s.host_peak_bytes);
  CHECK(s.host_peak_bytes <= p.host_budget());
  CHECK(s.lower_bound <= s.time * (1 + 1e-9));
}

}  // namespace

TEST_CASE("on small chains, no schedule is faster than the optimum, and most are as fast") {
  std::size_t solved = 0, optimal = 0, with_copies = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const problem whole = problem_of(test::random_chain(seed, 2 + (seed % 10 == 0 ? 1 : 0)));
    for (const double part : {0.9, 0.75}) {
      const problem p = test::within(whole, part).with_link(random_link(seed), seed % 4 == 0 ? 9 : problem::unlimited);
      CAPTURE(seed);
      CAPTURE(part);
      const solution s = pofo(p, few());
      const test::fastest_result best = test::fastest_with_copies(p, 30'000);
      if (s.status == solve_status::infeasible) CHECK((!best.complete || !std::isfinite(best.time)));
      if (!s.plan || !best.complete) continue;
      check_answer(p, s);
      CHECK(s.time >= best.time * (1 - 1e-9));
      CHECK(s.lower_bound <= best.time * (1 + 1e-9));
      ++solved;
      optimal += s.time <= best.time * (1 + 1e-9);
      with_copies += s.plan->has_copies();
    }
  }
  MESSAGE(solved, " solved, ", optimal, " of them optimal, ", with_copies, " with copies");
  CHECK(solved > 50);
  CHECK(with_copies > 10);
  CHECK(10 * optimal > 8 * solved);
}

TEST_CASE("it is never slower than rotor, keeps the host's budget, and gains with a fast link") {
  std::size_t faster = 0, only_with_copies = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const problem whole = problem_of(test::random_chain(1000 + seed, 4 + seed % 14));
    const problem within = test::within(whole, seed % 2 == 0 ? 0.5 : 0.7);
    const problem p = within.with_link(random_link(seed), seed % 3 == 0 ? 20 : problem::unlimited);
    const solution both = pofo(p, few());
    const solution alone = rotor(within, rotor_like(few()));
    if (alone.plan) REQUIRE(both.plan);
    if (!both.plan) continue;
    check_answer(p, both);
    if (!alone.plan) {
      only_with_copies += 1;
      continue;
    }
    CHECK(both.time <= alone.time * (1 + 1e-12));
    faster += both.time < alone.time * (1 - 1e-9);
  }
  MESSAGE(faster, " faster than rotor, ", only_with_copies, " that rotor cannot solve");
  CHECK(faster > 10);
}

TEST_CASE("where all copies hide, nothing runs again") {
  // Ten equal stages; the link copies what a stage saves while the next stage runs.
  const problem whole = bundled_chain("homog-10");
  const problem within = test::within(whole, 0.5);
  const problem p = within.with_link({.out = 4e6, .in = 4e6, .latency = 0});
  const solution s = pofo(p);
  check_answer(p, s);
  CHECK(s.status == solve_status::optimal);
  CHECK(s.time == whole.graph().needed_time);
  CHECK(s.statistics.recomputes == 0);
  CHECK(rotor(within).time > s.time);
  // Without bytes on the host, it is rotor's answer.
  const problem no_host = within.with_link({.out = 4e6, .in = 4e6, .latency = 0}, 0);
  const solution alone = pofo(no_host);
  CHECK(alone.time == rotor(within).time);
  CHECK(alone.by == "pofo/rotor");
  CHECK_FALSE(alone.plan->has_copies());
}

TEST_CASE("the bundled chains: faster than rotor, by plans whose time the program knows") {
  for (const char* name : {"random-25", "blocks-25"}) {
    CAPTURE(name);
    const problem within = test::within(bundled_chain(name), 0.3);
    const problem p = within.with_link({.out = 4e6, .in = 4e6, .latency = 0.01});
    const solution s = pofo(p, few());
    check_answer(p, s);
    CHECK(s.plan->has_copies());
    const solution alone = rotor(within, rotor_like(few()));
    const double base = p.graph().baseline_time;
    CHECK(s.time - base < 0.8 * (alone.time - base));
  }
}

TEST_CASE("every plan of the program runs each backward once, and names what its forwards make") {
  std::size_t plans = 0, with_copies = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    const bool is_chain = seed % 2 == 0;
    const problem whole =
        is_chain ? problem_of(test::random_chain(seed, 3 + seed % 8)) : test::random_problem(seed, {.operations = 20});
    const problem p = test::within(whole, 0.6);
    const detail::forward_line line = detail::find_forward_line(p.graph());
    detail::chain_program program(p.graph(), line, detail::cut_levels(line, 20).front());
    run_clock clock({}, "test");
    REQUIRE(program.fill(clock, {}) == detail::fill_outcome::filled);
    detail::backlog::terms what;
    what.budget = p.budget();
    what.host_budget = 30;
    what.link = random_link(seed);
    what.states = 50;
    what.plans = 6;
    detail::backlog::backlog_program copies(program, what);
    double before = 0;
    for (const detail::backlog::backlog_program::plan& plan : copies.solve(clock)) {
      ++plans;
      CHECK(plan.time >= before);
      before = plan.time;
      const std::vector<chain_step> steps = copies.steps(plan);
      std::vector<int> backwards(program.chain().length() + 1, 0);
      for (const chain_step& s : steps)
        if (s.action == chain_action::backward) ++backwards[s.stage];
      for (std::uint32_t s = 1; s <= program.chain().length(); ++s) CHECK(backwards[s] == 1);
      const schedule made = schedule_computes(p.graph(), program.expand(steps, true));
      const check_report r = check(p.with_budget(problem::unlimited), made);
      CHECK(r.valid());
      CHECK(r.time <= plan.time + program.chain().standing_time() + 1e-9);  // without the waits for copies
      for (const detail::backlog::backlog_program::host_range& range : copies.on_host(plan)) {
        CHECK(1 <= range.first);
        CHECK(range.first <= range.last);
        CHECK(range.last <= program.chain().length());
        ++with_copies;
      }
    }
  }
  CHECK(plans > 60);
  CHECK(with_copies > 60);
}

TEST_CASE("the answer is the same for any number of threads, also under a limit on work") {
  const problem p = test::within(problem_of(test::random_chain(7, 24)), 0.5).with_link({.out = 3, .in = 3});
  for (const std::uint64_t work : {std::uint64_t{20'000}, run_control::no_work_limit}) {
    pofo_options one = few(), three = few(3);
    one.run.work_limit = three.run.work_limit = work;
    const solution a = pofo(p, one), b = pofo(p, three);
    REQUIRE(a.plan.has_value() == b.plan.has_value());
    CHECK(a.time == b.time);
    CHECK(a.by == b.by);
    if (a.plan) CHECK(a.plan->steps == b.plan->steps);
  }
}

TEST_CASE("a problem without a link is rotor's") {
  const problem p = test::within(problem_of(test::random_chain(3, 12)), 0.6);
  const solution s = pofo(p, few()), r = rotor(p, rotor_like(few()));
  CHECK(s.time == r.time);
  CHECK(s.status == r.status);
  CHECK(s.by == "pofo/" + r.by);
}
