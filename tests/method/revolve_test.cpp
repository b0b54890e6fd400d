// SPDX-License-Identifier: BSL-1.0
#include "remat/method/revolve.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "remat/chain/chain.hpp"
#include "remat/cost/models.hpp"
#include "remat/io/json.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/solver/solution.hpp"
#include "support/answer.hpp"
#include "support/csv.hpp"
#include "support/exhaustive.hpp"
#include "support/least_advances.hpp"
#include "support/random_chain.hpp"
#include "support/random_graph.hpp"

namespace {

using remat::chain_problem;
using remat::chain_solution;
using remat::problem;
using remat::solution;
using remat::solve_status;

static_assert(remat::solver_for<remat::revolve_solver, problem>);

TEST_CASE("the binomial formula is the recurrence's optimum, and its splits are optimal") {
  const auto t = remat::test::least_advances(60, 15);
  for (std::uint64_t c = 0; c <= 15; ++c)
    for (std::uint64_t l = 1; l <= 60; ++l) {
      CAPTURE(c);
      CAPTURE(l);
      CHECK(remat::revolve_advances(l, c) == t[c][l]);
      if (l < 2 || c < 1) continue;
      const std::uint64_t j = remat::revolve_first_advance(l, c);
      CHECK(j + t[c - 1][l - j] + t[c][j] == t[c][l]);
    }
}

TEST_CASE("published values: forwards in all, and the memory that c slots mean") {
  const auto rows = remat::test::read_csv(REMAT_TEST_DATA "/revolve.csv");
  REQUIRE(rows.size() == 36);
  for (const auto& row : rows) {
    // There the slots count the input.
    const auto l = static_cast<std::uint32_t>(std::stoul(row[0])),
               c = static_cast<std::uint32_t>(std::stoul(row[1])) - 1;
    CAPTURE(l);
    CAPTURE(c);
    CHECK(remat::revolve_advances(l, c) == std::stoull(row[2]));
    // Beside x_0 and one saved stage with its gradient: the slots, and the input of the stage that is saved. Two saved
    // stages would take more than all checkpoints.
    const std::int64_t saved = l + 1;
    const chain_problem p(remat::test::unit_chain(l, saved), 1 + saved + 1 + c + 1);
    const remat::chain_report report = remat::simulate(p, remat::revolve_steps(l, c));
    CHECK(report.legal);
    CHECK(report.forwards == std::stoull(row[3]));
    CHECK(report.peak_bytes == 1 + saved + 1 + std::min(c + 1, l - 1));
    const chain_solution s = remat::revolve(p);
    REQUIRE(s.has_schedule());
    CHECK(s.time == std::stod(row[3]));
  }
}

TEST_CASE("chains: legal within the budget, and the most slots that fit") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    const remat::chain c = remat::test::random_chain(seed, 1 + seed % 12);
    const chain_problem free(c);
    CHECK(remat::revolve(free).time == c.store_all_time());
    for (const int percent : {90, 70, 50}) {
      const chain_problem p = free.with_budget(remat::no_remat(free).peak_bytes * percent / 100);
      const chain_solution s = remat::revolve(p);
      if (!s.has_schedule()) {
        CHECK((s.status == solve_status::infeasible || s.status == solve_status::timeout));
        CHECK(remat::simulate(p, remat::revolve_steps(static_cast<std::uint32_t>(c.length()), 0)).peak_bytes >
              p.budget());
        continue;
      }
      const remat::chain_report report = remat::simulate(p, *s.plan);
      CHECK(report.legal);
      CHECK(report.time == s.time);
      CHECK(report.peak_bytes == s.peak_bytes);
      CHECK(report.peak_bytes <= p.budget());
    }
  }
}

TEST_CASE("random graphs of every kind: valid within the budget, and never better than the optimum") {
  int solved = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    remat::test::random_graph_options options;
    options.operations = 1 + static_cast<std::uint32_t>(seed % 9);
    options.accumulate = 30;
    const problem free = remat::test::random_problem(seed, options);
    const problem p = free.with_budget(free.graph().baseline_peak * 75 / 100);
    const solution s = remat::revolve(p);
    remat::test::check_answer(p, s);
    CHECK(s.time >= remat::test::least_time(p));
    solved += s.has_schedule();
  }
  CHECK(solved > 20);
}

TEST_CASE("every bundled graph, at most budgets") {
  int solved = 0;
  for (const auto& file : remat::test::bundled_graphs()) {
    CAPTURE(file);
    const problem free = remat::read_training_step(file).instance;
    for (const int percent : {80, 60, 50, 40, 30}) {
      CAPTURE(percent);
      const problem p = free.with_budget(free.graph().baseline_peak / 100 * percent);
      const solution s = remat::revolve(p);
      remat::test::check_answer(p, s);
      solved += s.has_schedule();
    }
  }
  CHECK(solved >= 80);
}

TEST_CASE("the first advance is the least of the best") {
  for (std::uint64_t l = 2; l <= 300; ++l)
    for (std::uint64_t c = 1; c <= 60; ++c) {
      const auto cost = [&](std::uint64_t j) {
        return j + remat::revolve_advances(l - j, c - 1) + remat::revolve_advances(j, c);
      };
      std::uint64_t best = 1;
      for (std::uint64_t j = 2; j < l; ++j)
        if (cost(j) < cost(best)) best = j;
      CAPTURE(l);
      CAPTURE(c);
      CHECK(remat::revolve_first_advance(l, c) == best);
    }
  // At the largest length, neither neighbour is better.
  const std::uint64_t l = 2'147'483'647;
  for (const std::uint64_t c : {1ULL, 2ULL, 7ULL, 100ULL, 50'000ULL, 2'147'483'646ULL}) {
    const auto cost = [&](std::uint64_t j) {
      return j + remat::revolve_advances(l - j, c - 1) + remat::revolve_advances(j, c);
    };
    const std::uint64_t j = remat::revolve_first_advance(l, c);
    CAPTURE(c);
    if (j > 1) CHECK(cost(j - 1) > cost(j));
    CHECK(cost(j + 1) >= cost(j));
  }
}

TEST_CASE("uniform chains of thousands of steps: steps run again by Griewank and Walther's formula") {
  struct expected {
    std::size_t length;
    std::int64_t checkpoints;  // the input among them
    std::uint64_t again;
  };
  for (const expected& e : std::vector<expected>{{1000, 5, 6284},
                                                 {1000, 10, 3636},
                                                 {1000, 20, 2747},
                                                 {1000, 40, 2097},
                                                 {1000, 80, 1918},
                                                 {2000, 5, 14997},
                                                 {2000, 10, 8635},
                                                 {2000, 20, 5976},
                                                 {10000, 5, 112868},
                                                 {10000, 10, 57624},
                                                 {10000, 20, 37976},
                                                 {100000, 20, 534220}}) {
    CAPTURE(e.length);
    CAPTURE(e.checkpoints);
    const chain_problem p(remat::test::adjoint_chain(e.length), e.checkpoints + 4);
    remat::revolve_options at_once;
    at_once.run.work_limit = 0;
    for (const remat::revolve_options& options : {remat::revolve_options{}, at_once}) {
      const chain_solution s = remat::revolve(p, options);
      REQUIRE(s.has_schedule());
      CHECK(s.statistics.recomputes == e.again);
      CHECK(s.peak_bytes == p.budget());
      if (!options.run.has_work_limit()) CHECK(s.statistics.work <= 4 * e.length);
    }
  }
}

TEST_CASE("graphs of uniform chains: each operation is a stage, whatever max_stages is") {
  for (const std::size_t length : {40U, 400U, 2000U})
    for (const std::int64_t checkpoints : {5, 20}) {
      CAPTURE(length);
      CAPTURE(checkpoints);
      const chain_problem c(remat::test::adjoint_chain(length), checkpoints + 4);
      const problem p(remat::chain_graph(c.stages()), remat::measured_cost{}, checkpoints + 4);
      const solution s = remat::revolve(p, {.max_stages = 150});
      remat::test::check_answer(p, s);
      REQUIRE(s.has_schedule());
      CHECK(s.time <= remat::revolve(c).time);
    }
}

TEST_CASE("stages that are not alike: the largest number of slots of all that fit") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const auto length = static_cast<std::uint32_t>(1 + seed % 14);
    const chain_problem free(remat::test::random_chain(seed, length));
    for (const int percent : {90, 70, 50}) {
      CAPTURE(seed);
      CAPTURE(percent);
      const chain_problem p = free.with_budget(free.stages().store_all_peak_bytes() * percent / 100);
      if (remat::no_remat(p).has_schedule()) continue;
      const chain_solution s = remat::revolve(p);
      std::uint32_t slots = length;
      while (slots-- > 0 && remat::simulate(p, remat::revolve_steps(length, slots)).peak_bytes > p.budget()) {
      }
      REQUIRE(s.has_schedule() == (slots < length));
      if (s.has_schedule()) CHECK(*s.plan == remat::revolve_steps(length, slots));
    }
  }
}

TEST_CASE("stopped at once: the closed form all the same") {
  const chain_problem p(remat::test::unit_chain(50, 60), 70);
  const chain_solution whole = remat::revolve(p);
  REQUIRE(whole.has_schedule());
  remat::revolve_options options;
  options.run.work_limit = 0;
  CHECK(remat::revolve(p, options).time == whole.time);
  CHECK(remat::revolve(p.with_budget(62), options).status == solve_status::infeasible);
  std::stop_source source;
  source.request_stop();
  options.run = {};
  options.run.stop = source.get_token();
  CHECK(remat::revolve(p, options).time == whole.time);
}

}  // namespace
