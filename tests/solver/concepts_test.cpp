// SPDX-License-Identifier: BSL-1.0
#include "remat/solver/solution.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <stop_token>
#include <string>
#include <type_traits>
#include <vector>

#include "remat/core/error.hpp"
#include "remat/method/chen.hpp"
#include "remat/method/no_remat.hpp"
#include "remat/method/revolve.hpp"
#include "remat/method/rotor.hpp"
#include "remat/schedule/check.hpp"
#include "support/random_chain.hpp"
#include "support/random_graph.hpp"

namespace {

using remat::chain_problem;
using remat::chain_solution;
using remat::problem;
using remat::solution;
using remat::solve_status;

static_assert(remat::solver_solution<solution>);
static_assert(remat::solver_solution<chain_solution>);
static_assert(std::is_same_v<remat::solution_of<problem>, solution>);
static_assert(std::is_same_v<remat::solution_of<chain_problem>, chain_solution>);
static_assert(remat::solver_for<remat::no_remat_solver, chain_problem>);
static_assert(remat::solver_for<remat::chen_sqrt_solver, chain_problem>);
static_assert(remat::solver_for<remat::revolve_solver, chain_problem>);
static_assert(remat::solver_for<remat::rotor_solver, chain_problem>);
static_assert(!remat::solver_for<remat::chen_greedy_solver, chain_problem>);
static_assert(!remat::solver_for<remat::rotor_solver, int>);

struct measured_plan {
  bool legal;
  double time;
  std::int64_t peak_bytes;
};
measured_plan measure(const problem& p, const solution& s) {
  const remat::check_report r = remat::check(p, *s.plan);
  return {r.valid(), r.time, r.peak_bytes};
}
measured_plan measure(const chain_problem& p, const chain_solution& s) {
  const remat::chain_report r = remat::simulate(p, *s.plan);
  return {r.legal, r.time, r.peak_bytes};
}

/// The laws of all solvers: one text for both types of problem.
template <class Solver, class P>
requires remat::solver_for<Solver, P>
void check_laws(const Solver& solver, const P& p) {
  CAPTURE(Solver::name);
  const remat::solution_of<P> s = solver(p);
  CHECK(s.proven);
  CHECK(s.has_schedule() == (s.status == solve_status::optimal || s.status == solve_status::feasible));
  CHECK((s.status == solve_status::infeasible) == std::isinf(s.lower_bound));
  if (s.has_schedule()) {
    const measured_plan truth = measure(p, s);
    CHECK(truth.legal);
    CHECK(truth.time == s.time);
    CHECK(truth.peak_bytes == s.peak_bytes);
    CHECK(truth.peak_bytes <= p.budget());
    CHECK(s.time >= s.lower_bound * (1 - 1e-9));
  } else {
    CHECK(std::isinf(s.time));
    CHECK_FALSE(s.message.empty());
  }
  // Whoever was cancelled before it began has no more than what was there at once.
  std::stop_source source;
  source.request_stop();
  typename Solver::options_type options;
  options.run.stop = source.get_token();
  const remat::solution_of<P> none = solver(p, options);
  if (!none.has_schedule() && none.status != solve_status::infeasible) CHECK(none.status == solve_status::cancelled);
}

TEST_CASE("one law suite for the solvers of graphs and of chains") {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const chain_problem chain(remat::test::random_chain(seed, 2 + seed % 9));
    const problem graph = remat::test::random_problem(seed);
    for (const std::int64_t percent : {0, 30, 60, 80, 100}) {
      CAPTURE(percent);
      const chain_problem c = chain.with_budget(chain.stages().store_all_peak_bytes() * percent / 100);
      check_laws(remat::chen_sqrt, c);
      check_laws(remat::revolve, c);
      check_laws(remat::rotor, c);
      const problem g = graph.with_budget(graph.graph().baseline_peak * percent / 100);
      check_laws(remat::chen_sqrt, g);
      check_laws(remat::chen_greedy, g);
      check_laws(remat::revolve, g);
      check_laws(remat::rotor, g);
    }
  }
}

TEST_CASE("options out of range throw") {
  const chain_problem c(remat::test::random_chain(1, 3));
  const problem g = remat::test::random_problem(1);
  CHECK_THROWS_AS((void)remat::rotor(c, {.slots = 0}), remat::bad_argument);
  CHECK_THROWS_AS((void)remat::rotor(c, {.slots = (1U << 24) + 1}), remat::bad_argument);
  CHECK_THROWS_AS((void)remat::rotor(g, {.max_stages = 0}), remat::bad_argument);
  CHECK_THROWS_AS((void)remat::rotor(g, {.table_bytes = -1}), remat::bad_argument);
  CHECK_THROWS_AS((void)remat::revolve(c, {.max_stages = 0}), remat::bad_argument);
  CHECK_THROWS_AS((void)remat::chen_greedy(g, {.sizes = 0}), remat::bad_argument);
}

}  // namespace
