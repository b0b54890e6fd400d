// SPDX-License-Identifier: BSL-1.0
#include "remat/method/chen.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <stop_token>
#include <vector>

#include "remat/io/json.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/solver/solution.hpp"
#include "support/answer.hpp"
#include "support/exhaustive.hpp"
#include "support/random_graph.hpp"

namespace {

using remat::chain_problem;
using remat::chain_solution;
using remat::problem;
using remat::solution;
using remat::solve_status;

static_assert(remat::solver_for<remat::chen_sqrt_solver, problem>);
static_assert(remat::solver_for<remat::chen_greedy_solver, problem>);

TEST_CASE("random graphs of every kind: valid within the budget, and never better than the optimum") {
  int solved = 0, recomputed = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    remat::test::random_graph_options options;
    options.operations = 1 + static_cast<std::uint32_t>(seed % 9);
    options.once = seed % 3 == 0 ? 0 : 15;
    options.accumulate = seed % 2 == 0 ? 40 : 10;
    const problem free = remat::test::random_problem(seed, options);
    for (const int percent : {95, 80, 60}) {
      CAPTURE(percent);
      const problem p = free.with_budget(free.graph().baseline_peak * percent / 100);
      const double optimum = remat::test::least_time(p);
      for (const solution& s : {remat::chen_sqrt(p), remat::chen_greedy(p)}) {
        remat::test::check_answer(p, s);
        CHECK(s.time >= optimum);
        solved += s.has_schedule();
        recomputed += s.statistics.recomputes > 0;
        if (s.status == solve_status::infeasible) CHECK(std::isinf(optimum));
      }
    }
  }
  CHECK(solved > 300);
  CHECK(recomputed > 20);
}

TEST_CASE("larger random graphs") {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    CAPTURE(seed);
    remat::test::random_graph_options options;
    options.operations = 10 + static_cast<std::uint32_t>(seed % 40);
    options.backward = 90;
    options.once = seed % 2 == 0 ? 0 : 10;
    const problem free = remat::test::random_problem(seed, options);
    for (const int percent : {90, 70, 50, 30}) {
      const problem p = free.with_budget(free.graph().baseline_peak * percent / 100);
      remat::test::check_answer(p, remat::chen_sqrt(p));
      remat::test::check_answer(p, remat::chen_greedy(p));
    }
  }
}

TEST_CASE("every bundled graph, at most budgets") {
  int greedy_solved = 0, sqrt_solved = 0;
  for (const auto& file : remat::test::bundled_graphs()) {
    CAPTURE(file);
    const problem free = remat::read_training_step(file).instance;
    for (const int percent : {80, 60, 50, 40, 30}) {
      CAPTURE(percent);
      const problem p = free.with_budget(free.graph().baseline_peak / 100 * percent);
      const solution a = remat::chen_sqrt(p), b = remat::chen_greedy(p);
      remat::test::check_answer(p, a);
      remat::test::check_answer(p, b);
      sqrt_solved += a.has_schedule();
      greedy_solved += b.has_schedule();
    }
    CHECK(remat::chen_greedy(free).status == solve_status::optimal);
  }
  CHECK(sqrt_solved >= 60);
  CHECK(greedy_solved >= 70);
}

TEST_CASE("a chain in segments: every forward but those of the last segment runs twice") {
  for (const auto& file : remat::test::bundled_chains()) {
    CAPTURE(file);
    const remat::chain c = remat::read_chain(file);
    const chain_problem free(c);
    CHECK(remat::chen_sqrt(free).status == solve_status::optimal);
    CHECK(remat::chen_sqrt(free).time == doctest::Approx(c.store_all_time()));
    const std::int64_t store_all = remat::no_remat(free).peak_bytes;
    const chain_problem p = free.with_budget(store_all - 1);
    CHECK_FALSE(remat::no_remat(p).has_schedule());
    const chain_solution s = remat::chen_sqrt(p);
    REQUIRE(s.has_schedule());
    CHECK(s.peak_bytes < store_all);
    const auto root = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(c.length()))));
    CHECK(s.statistics.recomputes == (c.length() - 1) / root * root);
    const remat::chain_report report = remat::simulate(p, *s.plan);
    CHECK(report.legal);
    CHECK(report.time == s.time);
    CHECK(report.peak_bytes == s.peak_bytes);
  }
}

TEST_CASE("stopped before the first schedule") {
  const problem free = remat::read_training_step(REMAT_TEST_DATA "/graphs/resnet50-b64-224.json").instance;
  const problem p = free.with_budget(free.graph().baseline_peak / 2);
  std::stop_source source;
  source.request_stop();
  remat::chen_greedy_options options;
  options.run.stop = source.get_token();
  CHECK(remat::chen_greedy(p, options).status == solve_status::cancelled);
  remat::chen_sqrt_options sqrt_options;
  sqrt_options.run.work_limit = 0;
  CHECK(remat::chen_sqrt(p, sqrt_options).status == solve_status::timeout);
  std::uint64_t calls = 0;
  options.run = {};
  options.run.on_progress = [&](const remat::progress& news) {
    ++calls;
    CHECK(news.solver == "chen_greedy");
  };
  CHECK(remat::chen_greedy(p, options).has_schedule());
  CHECK(calls > 0);
}

}  // namespace
