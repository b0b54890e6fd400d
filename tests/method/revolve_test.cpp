// SPDX-License-Identifier: BSL-1.0
#include "remat/method/revolve.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "remat/io/chain_json.hpp"
#include "remat/io/training_graph_json.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/solver/concepts.hpp"
#include "support/answer.hpp"
#include "support/csv.hpp"
#include "support/exhaustive.hpp"
#include "support/random_chain.hpp"
#include "support/random_graph.hpp"

namespace {

using remat::chain_problem;
using remat::chain_solution;
using remat::problem;
using remat::solution;
using remat::solve_status;

static_assert(remat::solver_for<remat::revolve_solver, problem>);

/// The least forward steps by the plain recurrence, for all l and c.
std::vector<std::vector<std::uint64_t>> least_advances(std::size_t most_l, std::size_t most_c) {
  std::vector<std::vector<std::uint64_t>> t(most_c + 1, std::vector<std::uint64_t>(most_l + 1, 0));
  for (std::size_t c = 0; c <= most_c; ++c)
    for (std::size_t l = 2; l <= most_l; ++l) {
      t[c][l] = l * (l - 1) / 2;
      for (std::size_t j = 1; c > 0 && j < l; ++j) t[c][l] = std::min(t[c][l], j + t[c - 1][l - j] + t[c][j]);
    }
  return t;
}

TEST_CASE("the binomial formula is the recurrence's optimum, and its splits are optimal") {
  const auto t = least_advances(60, 15);
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

TEST_CASE("stopped before the first schedule") {
  const chain_problem p(remat::test::unit_chain(50, 60), 70);
  remat::revolve_options options;
  options.run.work_limit = 0;
  CHECK(remat::revolve(p, options).status == solve_status::timeout);
  std::stop_source source;
  source.request_stop();
  options.run = {};
  options.run.stop = source.get_token();
  CHECK(remat::revolve(p, options).status == solve_status::cancelled);
  CHECK(remat::revolve(p).has_schedule());
}

}  // namespace
